//! Shares by a dynamic program over sets of demands: which fit on a share, on a GPU in two shares,
//! on several GPUs.
//!
//! Whether a set fits on a share depends on the other share of the GPU only by the loudest there
//! (`scene.rs`), so a set is known by its noise and by the most noise that it bears, and two sets
//! make a GPU if each bears the other. GPUs are added one by one: what the first of them hold, and
//! the rest.
//!
//! A rate may have to be split over several shares. For a few *flexible* demands the program keeps,
//! beside each set of the others, how much of them is served there: the best combinations, since
//! more of one may be less of another. A share holds at most one flexible demand in part beside
//! others, or several and nobody else. Every choice of so many demands is tried as the flexible
//! ones.
//!
//! What a GPU bears is bounded by the best that one was seen to do, in GPUs as if they were a
//! fluid; combinations which the other GPUs could not complete at their best are left out, and
//! nothing is lost by that. What may be lost: divisions of a share between several demands finer
//! than the steps that are tried, and the lightest of very many combinations.

mod aim;
mod single;

use super::board::{Board, Gpu, Slot};
use super::scene::{Item, Scene};
use aim::{Aim, CLOSE, FLEXIBLE_MAX, Point, Served, Set, Use, members, subsets};
use single::{OnGpu, Search, Table};

/// With more demands than the first number, as many as the second may be flexible: the time grows
/// threefold with each demand, and with the number of choices of flexible ones.
const FLEXIBLE: [(usize, usize); 4] = [(11, 0), (9, 1), (4, 2), (0, FLEXIBLE_MAX)];
/// No more demands than this.
pub(super) const ITEMS_MAX: usize = 14;
/// And no more sets that a share may hold: every two of them are compared.
const SETS_MAX: usize = 600;
/// With more GPUs than this, those come first that one demand fills.
const GPUS_MAX: usize = 8;

/// Of many demands, so many are looked at for each GPU.
const SAMPLE: usize = 12;

/// A board on which at most so many GPUs serve everything, if the program finds one.
pub fn search(scene: &Scene, gpus: usize) -> Option<Board> {
    if scene.items.len() > ITEMS_MAX || scene.lower_bound() > gpus {
        return None;
    }
    if gpus > GPUS_MAX { after_full_ones(scene, gpus) } else { program(scene, gpus) }
}

/// The program, with no flexible demand, then with more.
fn program(scene: &Scene, gpus: usize) -> Option<Board> {
    let count = scene.items.len();
    if count == 0 {
        return Some(Board { gpus: Vec::new() });
    }
    let mut search = Search::new(scene);
    if gpus == 0 || search.sets.len() > SETS_MAX {
        return None;
    }
    // The demands that ask for most are the likeliest to be split.
    let mut order: Vec<usize> = (0..count).collect();
    let load = |item: usize| scene.items[item].load();
    order.sort_by(|&a, &b| load(b).total_cmp(&load(a)).then(a.cmp(&b)));
    let allowed = FLEXIBLE.iter().find(|&&(above, _)| count > above);
    let most = allowed.map_or(0, |&(_, most)| most.min(count));
    // A flexible demand need not be split: two cover one, and all cover any.
    let tiers: &[usize] = match most {
        0 => &[0],
        1 => &[0, 1],
        2 => &[0, 2],
        _ => &[0, 2, most],
    };
    tiers.iter().find_map(|&flexible| {
        // By places in the order: the lowest numbers are the largest demands.
        let mut choices = (0..1 << count).filter(|set: &Set| set.count_ones() as usize == flexible);
        choices.find_map(|places| {
            let chosen: Vec<usize> = members(places).map(|place| order[place]).collect();
            search.with_flexible(&chosen, gpus)
        })
    })
}

/// Demands that fill whole GPUs get them; what is left of them and the others share the rest.
/// Nothing is lost by that but the last few GPUs' worth: a model alone on shares serves about as
/// much as on the GPU that they are of.
fn after_full_ones(scene: &Scene, gpus: usize) -> Option<Board> {
    let (mut board, rests) = full_ones(scene);
    let left = gpus.checked_sub(board.gpus.len())?;
    let found = program(&scene.part(&rests), left.min(rests.len()))?;
    board.gpus.extend(found.gpus.into_iter().map(|gpu| renamed(gpu, &rests)));
    Some(board)
}

/// Whole GPUs for what fills them, and what is left of each item.
pub(super) fn full_ones(scene: &Scene) -> (Board, Vec<(usize, f64)>) {
    let (mut board, mut rests) = (Board { gpus: Vec::new() }, Vec::new());
    for (item, Item { rate, .. }) in scene.items.iter().enumerate() {
        let most = scene.room(scene.whole(), 0, &[], item);
        let full = Slot { size: scene.whole(), members: vec![(item, most)] };
        let count = (rate / most).floor();
        board.gpus.resize(board.gpus.len() + count as usize, Gpu { slots: vec![full] });
        let rest = rate - count * most;
        // A rest that is a rounding error is none.
        if rest > rate * CLOSE {
            rests.push((item, rest));
        }
    }
    (board, rests)
}

/// A GPU of a part of a scene, in the words of the scene.
pub(super) fn renamed(mut gpu: Gpu, part: &[(usize, f64)]) -> Gpu {
    let members = gpu.slots.iter_mut().flat_map(|slot| &mut slot.members);
    members.for_each(|(item, _)| *item = part[*item].0);
    gpu
}

/// Any number of demands, GPU by GPU: the largest demand that is left, and those of a sample of the
/// others that fill a GPU best with it. No rate is split, but for whole GPUs.
pub(super) fn gpu_by_gpu(scene: &Scene) -> Board {
    let (mut board, mut rests) = full_ones(scene);
    let load = |&(item, rate): &(usize, f64)| rate * scene.items[item].cost;
    rests.sort_by(|a, b| load(b).total_cmp(&load(a)).then(a.0.cmp(&b.0)));
    while let Some(&largest) = rests.first() {
        let sample = rests.len().min(SAMPLE);
        let mut sampled: Vec<(usize, f64)> =
            (0..sample).map(|at| rests[at * rests.len() / sample]).collect();
        sampled.sort_unstable_by_key(|&(item, _)| item);
        let first = sampled.iter().position(|&(item, _)| item == largest.0);
        let first = first.expect("the sample begins with the largest");
        let part = scene.part(&sampled);
        let gpu = renamed(Search::new(&part).fullest(first), &sampled);
        let members = || gpu.slots.iter().flat_map(|slot| &slot.members);
        rests.retain(|(item, _)| !members().any(|(member, _)| member == item));
        board.gpus.push(gpu);
    }
    board
}

/// Several GPUs: which set the last one holds, and the places of the points that are added.
#[derive(Clone, Copy, Debug)]
struct Sum {
    last: Set,
    before: u32,
    with: u32,
}

impl Search<'_> {
    /// The program, with these demands flexible.
    fn with_flexible(&mut self, flexible: &[usize], gpus: usize) -> Option<Board> {
        let aim = Aim::new(self.scene, flexible);
        let others = aim.others;
        let (single, best) = self.single(&aim, gpus)?;
        // Half of the GPUs hold one part of the others, half the rest: only tables up to a half are
        // needed.
        let half = gpus.div_ceil(2);
        let mut tables: Vec<Table<Sum>> = vec![start(others)];
        for count in 1..=half {
            let before = tables.last().expect("there is always the table of no GPU");
            let least = aim.whole_load() - best * (gpus - count) as f64;
            tables.push(add(&aim, before, &single, least));
        }
        let (left, right) = (&tables[gpus - gpus / 2], &tables[gpus / 2]);
        for set in subsets(others) {
            let (ours, theirs) = (&left[set as usize], &right[(others & !set) as usize]);
            for (a, one) in ours.iter().enumerate() {
                let met = |other: &Point<Sum>| aim.is_met(&one.served, &other.served);
                if let Some(b) = theirs.iter().position(met) {
                    let mut found = Vec::new();
                    unfold(&tables[..=gpus - gpus / 2], &single, set, a, &mut found);
                    unfold(&tables[..=gpus / 2], &single, others & !set, b, &mut found);
                    return Some(self.board(&aim, &found));
                }
            }
        }
        None
    }

    /// One GPU that holds this item, and as much of the others as it can.
    fn fullest(&mut self, item: usize) -> Gpu {
        let aim = Aim::new(self.scene, &[]);
        let (table, _) = self.single(&aim, usize::MAX).expect("so many GPUs bear anything");
        let with_item = |set: &Set| set >> item & 1 == 1 && !table[*set as usize].is_empty();
        let load = |set: &Set| aim.load(*set, &[0.0; FLEXIBLE_MAX]);
        let sets = subsets(aim.others).filter(with_item);
        let fullest = sets.max_by(|a, b| load(a).total_cmp(&load(b)));
        let fullest = fullest.expect("what does not fill a GPU fits on one alone");
        let found = [table[fullest as usize][0].by];
        self.board(&aim, &found).gpus.swap_remove(0)
    }

    /// The GPUs that were found, with flexible rates scaled down to what is wanted.
    fn board(&self, aim: &Aim<'_>, found: &[OnGpu]) -> Board {
        let uses = || found.iter().flat_map(|gpu| gpu.uses.iter().flatten());
        let scale: Served = std::array::from_fn(|at| {
            let served: f64 = uses().map(|(_, served)| served[at]).sum();
            if served > aim.wanted[at] { aim.wanted[at] / served } else { 1.0 }
        });
        let slot = |(used, served): &(Use, Served)| {
            let full = members(used.set).map(|item| (item, self.scene.items[item].rate));
            let guests = aim.guests(used).map(|(at, item)| (item, served[at] * scale[at]));
            let guests = guests.filter(|&(_, rate)| rate > 0.0);
            Slot { size: usize::from(used.size), members: full.chain(guests).collect() }
        };
        let gpu = |gpu: &OnGpu| Gpu { slots: gpu.uses.iter().flatten().map(slot).collect() };
        Board { gpus: found.iter().map(gpu).collect() }
    }
}

/// The table of no GPU: it holds nobody.
fn start(others: Set) -> Table<Sum> {
    let mut table: Table<Sum> = vec![Vec::new(); others as usize + 1];
    let by = Sum { last: 0, before: 0, with: 0 };
    table[0].push(Point { served: [0.0; FLEXIBLE_MAX], by });
    table
}

/// The table of one GPU more, with what bears at least so much load.
fn add(aim: &Aim<'_>, before: &Table<Sum>, single: &Table<OnGpu>, least: f64) -> Table<Sum> {
    let mut table: Table<Sum> = vec![Vec::new(); before.len()];
    for set in subsets(aim.others) {
        let front = &mut table[set as usize];
        for last in subsets(set) {
            let points = &single[last as usize];
            for (at, one) in before[(set & !last) as usize].iter().enumerate() {
                for (with, other) in points.iter().enumerate() {
                    let by = Sum { last, before: at as u32, with: with as u32 };
                    let served = aim.plus(&one.served, &other.served);
                    if aim.load(set, &served) >= least - CLOSE {
                        aim.insert(set, front, Point { served, by });
                    }
                }
            }
        }
        aim.thin(set, front, least);
    }
    table
}

/// Follows a point of the last of the tables back to its GPUs.
fn unfold(
    tables: &[Table<Sum>],
    single: &Table<OnGpu>,
    mut set: Set,
    mut at: usize,
    found: &mut Vec<OnGpu>,
) {
    for table in tables.iter().skip(1).rev() {
        let Sum { last, before, with } = table[set as usize][at].by;
        found.push(single[last as usize][with as usize].by);
        (set, at) = (set & !last, before as usize);
    }
}
