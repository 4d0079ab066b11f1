//! Shares by a dynamic program over sets of demands: which fit on a share, on a GPU in two shares, on several GPUs.
//!
//! Whether a set fits on a share depends on the other share of the GPU only by the loudest there (`scene.rs`), so a set is
//! known by its noise and by the most noise that it bears, and two sets make a GPU if each bears the other. GPUs are
//! added one by one: what the first of them hold, and the rest.
//!
//! A rate may have to be split over several shares. For up to two *flexible* demands the program keeps, beside each set of
//! the others, how much of the two is served there: the best pairs, since more of one may be less of the other. A share
//! holds at most one flexible demand in part, or both and nobody else. Every pair of demands is tried as the flexible
//! ones. So what is found is the best of all plans in which at most two demands are split, but for shares on
//! which two split demands meet a third.

use super::board::{Board, Gpu, Slot};
use super::scene::Scene;

/// Sets of demands, as bits.
type Set = u32;

/// The program is exact up to this many demands with two of them flexible; with one; with none. Its time grows threefold
/// with each demand, and with the number of choices of flexible ones.
const FLEXIBLE_TWO_MAX: usize = 9;
const FLEXIBLE_ONE_MAX: usize = 11;
pub(super) const ITEMS_MAX: usize = 14;
/// With more GPUs than this, those come first that one demand fills.
const GPUS_MAX: usize = 8;
/// Of the ways to divide a share between two flexible demands, so many are kept.
const DIVISIONS_MAX: usize = 6;
/// Rates that differ by less are the same.
const CLOSE: f64 = 1e-9;

/// A board on which at most so many GPUs serve everything, if the program finds one.
pub fn search(scene: &Scene, gpus: usize) -> Option<Board> {
    if scene.items.len() > ITEMS_MAX || scene.lower_bound() > gpus {
        return None;
    }
    if gpus > GPUS_MAX { after_full_ones(scene, gpus) } else { program(scene, gpus) }
}

/// The program, with none, one or two flexible demands.
fn program(scene: &Scene, gpus: usize) -> Option<Board> {
    let count = scene.items.len();
    if count == 0 {
        return Some(Board { gpus: Vec::new() });
    }
    let mut search = Search::new(scene);
    if let Some(board) = search.with_flexible(&[], gpus) {
        return Some(board);
    }
    // The demands that ask for most are the likeliest to be split.
    let mut order: Vec<usize> = (0..count).collect();
    let load = |item: usize| scene.items[item].load();
    order.sort_by(|&a, &b| load(b).total_cmp(&load(a)).then(a.cmp(&b)));
    if count <= FLEXIBLE_TWO_MAX && count > 1 {
        let pairs = (1..count).flat_map(|second| (0..second).map(move |first| (first, second)));
        let mut pairs = pairs.map(|(first, second)| [order[first], order[second]]);
        return pairs.find_map(|pair| search.with_flexible(&pair, gpus));
    }
    if count <= FLEXIBLE_ONE_MAX {
        return order.iter().find_map(|&item| search.with_flexible(&[item], gpus));
    }
    None
}

/// Demands that fill whole GPUs get them; what is left of them and the others share the rest. Nothing is lost by that but
/// the last few GPUs' worth: a model alone on shares serves about as much as on the GPU that they are of.
fn after_full_ones(scene: &Scene, gpus: usize) -> Option<Board> {
    let mut board = Board { gpus: Vec::new() };
    let mut rates: Vec<f64> = scene.items.iter().map(|item| item.rate).collect();
    for (item, rate) in rates.iter_mut().enumerate() {
        let most = scene.room(scene.whole(), 0, &[], item);
        let full = Slot { size: scene.whole(), members: vec![(item, most)] };
        let count = (*rate / most).floor();
        let left = *rate - count * most;
        // A rest that is a rounding error is none.
        *rate = if left > *rate * CLOSE { left } else { 0.0 };
        board.gpus.resize(board.gpus.len() + count as usize, Gpu { slots: vec![full] });
    }
    let left = gpus.checked_sub(board.gpus.len())?;
    let place = |demand: usize| scene.items.iter().position(|item| item.demand == demand);
    let place = |demand: usize| place(demand).expect("a scene keeps its demands");
    let rest = scene.with_rates(|demand| rates[place(demand)]);
    for mut gpu in program(&rest, left.min(rest.items.len()))?.gpus {
        let members = gpu.slots.iter_mut().flat_map(|slot| &mut slot.members);
        members.for_each(|(item, _)| *item = place(rest.items[*item].demand));
        board.gpus.push(gpu);
    }
    Some(board)
}

/// What is known about sets on shares, found out when it is needed.
struct Search<'a> {
    scene: &'a Scene,
    /// All sets that a share may hold.
    sets: Vec<Set>,
    /// The place of a set in that list, by its bits.
    index: Vec<u32>,
    /// By size and place of the set: the most noise beside which all of it is served, less than zero if never.
    bears: Vec<Vec<i32>>,
    /// By place of the set.
    bytes: Vec<u64>,
    /// By size, place of the set, guest and level: the most of the guest that is served beside the set; NaN if unknown.
    rooms: Vec<f64>,
}

/// How a share is used: all of a set, and some of one flexible demand or of both.
#[derive(Clone, Copy, Debug)]
struct Use {
    size: u8,
    set: Set,
    guests: Guests,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Guests {
    Nobody,
    /// The first or the second of the flexible demands.
    One(u8),
    /// Both.
    Both,
}

/// How much of the flexible demands is served, and by what.
#[derive(Clone, Copy, Debug)]
struct Point<T> {
    rates: [f64; 2],
    by: T,
}

/// A GPU: one use of the whole, or two of shares. Rates of the flexible demands are those of the first, then of the second.
#[derive(Clone, Copy, Debug)]
struct OnGpu {
    uses: [Option<(Use, [f64; 2])>; 2],
}

/// Several GPUs: which set the last one holds, and the places of the points that are added.
#[derive(Clone, Copy, Debug)]
struct Sum {
    last: Set,
    before: u32,
    with: u32,
}

/// By set of the others.
type Table<T> = Vec<Vec<Point<T>>>;

impl<'a> Search<'a> {
    fn new(scene: &'a Scene) -> Self {
        let count = scene.items.len();
        let all = 1_u32 << count;
        let fits = |set: &Set| set.count_ones() as usize <= scene.models;
        let sets: Vec<Set> = (0..all).filter(fits).collect();
        let mut index = vec![u32::MAX; all as usize];
        sets.iter().zip(0..).for_each(|(&set, at)| index[set as usize] = at);
        let bytes = sets.iter().map(|&set| scene.bytes(members(set))).collect();
        let rooms = vec![f64::NAN; scene.sizes.len() * sets.len() * count * (count + 1)];
        let mut search = Self { scene, sets, index, bears: Vec::new(), bytes, rooms };
        search.bears = (0..scene.sizes.len()).map(|size| search.all_bear(size)).collect();
        search
    }

    /// The most noise that each set bears on a share of this size.
    fn all_bear(&self, size: usize) -> Vec<i32> {
        let scene = self.scene;
        let loudest = if size == scene.whole() { 0 } else { scene.items.len() as i32 };
        let mut bears: Vec<i32> = Vec::with_capacity(self.sets.len());
        for &set in &self.sets {
            // A set bears no more than any part of it; parts have smaller numbers.
            let part = |item: usize| bears[self.index[(set & !(1 << item)) as usize] as usize];
            let mut most = members(set).map(part).min().unwrap_or(loudest);
            let full: Vec<(usize, f64)> =
                members(set).map(|item| (item, scene.items[item].rate)).collect();
            let fits = |level: i32| scene.round(size, level as usize, &full).is_some();
            if most >= 0 && !fits(most) {
                // The highest level that fits is at least `low`, and below `most`.
                let mut low = -1;
                while most - low > 1 {
                    let middle = low.midpoint(most);
                    if fits(middle) { low = middle } else { most = middle }
                }
                most = low;
            }
            bears.push(most);
        }
        bears
    }

    /// The most of a guest that is served beside a set on a share.
    fn room(&mut self, size: usize, set: Set, guest: usize, level: usize) -> f64 {
        let at = self.index[set as usize] as usize;
        let count = self.scene.items.len();
        let cell = ((size * self.sets.len() + at) * count + guest) * (count + 1) + level;
        if self.rooms[cell].is_nan() {
            let full: Vec<(usize, f64)> =
                members(set).map(|item| (item, self.scene.items[item].rate)).collect();
            self.rooms[cell] = self.scene.room(size, level, &full, guest);
        }
        self.rooms[cell]
    }

    /// The program, with these demands flexible.
    fn with_flexible(&mut self, flexible: &[usize], gpus: usize) -> Option<Board> {
        let count = self.scene.items.len();
        let bits = flexible.iter().fold(0, |bits, &item| bits | 1 << item);
        let others = ((1_u32 << count) - 1) & !bits;
        let wanted: [f64; 2] =
            std::array::from_fn(|at| flexible.get(at).map_or(0.0, |&f| self.scene.items[f].rate));
        let single = self.single(flexible, others, wanted);
        // Half of the GPUs hold one part of the others, half the rest: only tables up to a half are needed.
        let half = gpus.div_ceil(2);
        let mut tables: Vec<Table<Sum>> = vec![start(others)];
        for _ in 0..half {
            let before = tables.last().expect("there is always the table of no GPU");
            tables.push(add(before, &single, others, wanted));
        }
        let (left, right) = (&tables[gpus - gpus / 2], &tables[gpus / 2]);
        for set in subsets(others) {
            let (ours, theirs) = (&left[set as usize], &right[(others & !set) as usize]);
            for (a, one) in ours.iter().enumerate() {
                for (b, other) in theirs.iter().enumerate() {
                    let served = |at: usize| one.rates[at] + other.rates[at];
                    if (0..2).all(|at| served(at) >= wanted[at] * (1.0 - CLOSE)) {
                        let mut found = Vec::new();
                        unfold(&tables[..=gpus - gpus / 2], &single, set, a, &mut found);
                        unfold(&tables[..=gpus / 2], &single, others & !set, b, &mut found);
                        return Some(self.board(flexible, wanted, &found));
                    }
                }
            }
        }
        None
    }

    /// What one GPU can do.
    fn single(&mut self, flexible: &[usize], others: Set, wanted: [f64; 2]) -> Table<OnGpu> {
        let mut table: Table<OnGpu> = vec![Vec::new(); self.index.len()];
        let scene = self.scene;
        let whole = self.uses(scene.whole(), flexible, others);
        for one in &whole {
            if !scene.holds(self.weight(one, flexible), 0) {
                continue;
            }
            for &rates in self.rates(one, flexible, 0, wanted).all() {
                let by = OnGpu { uses: [Some((*one, rates)), None] };
                insert(&mut table[one.set as usize], Point { rates, by });
            }
        }
        for &(p, q) in &scene.splits {
            let (small, large) = (self.uses(p, flexible, others), self.uses(q, flexible, others));
            for (at, one) in small.iter().enumerate() {
                let (level, weight) = (one.level(flexible), self.weight(one, flexible));
                // Halves may be swapped.
                let from = if p == q { at } else { 0 };
                for other in &large[from..] {
                    let noise = other.level(flexible);
                    if one.set & other.set != 0
                        || self.bearing(one) < noise as i32
                        || self.bearing(other) < level as i32
                        || !scene.holds(weight, self.weight(other, flexible))
                    {
                        continue;
                    }
                    let set = (one.set | other.set) as usize;
                    let theirs = self.rates(other, flexible, level, wanted);
                    for &ours in self.rates(one, flexible, noise, wanted).all() {
                        for &theirs in theirs.all() {
                            let rates = plus(ours, theirs, wanted);
                            let by = OnGpu { uses: [Some((*one, ours)), Some((*other, theirs))] };
                            insert(&mut table[set], Point { rates, by });
                        }
                    }
                }
            }
        }
        table
    }

    /// All ways to use a share of this size.
    fn uses(&self, size: usize, flexible: &[usize], others: Set) -> Vec<Use> {
        let mut uses = Vec::new();
        for (&set, &bears) in self.sets.iter().zip(&self.bears[size]) {
            if set & !others != 0 || bears < 0 {
                continue;
            }
            let mut add = |guests| uses.push(Use { size: size as u8, set, guests });
            add(Guests::Nobody);
            if (set.count_ones() as usize) < self.scene.models {
                (0..flexible.len()).for_each(|guest| add(Guests::One(guest as u8)));
            }
            if set == 0 && flexible.len() == 2 && self.scene.models >= 2 {
                add(Guests::Both);
            }
        }
        uses
    }

    /// The most noise that the set of a use bears, its guests aside.
    fn bearing(&self, used: &Use) -> i32 {
        self.bears[usize::from(used.size)][self.index[used.set as usize] as usize]
    }

    fn weight(&self, used: &Use, flexible: &[usize]) -> u64 {
        match used.guests {
            Guests::Nobody => self.bytes[self.index[used.set as usize] as usize],
            _ => self.scene.bytes(members(used.set | used.guests(flexible))),
        }
    }

    /// How much of the flexible demands a use serves beside so much noise; nothing at all if it cannot be.
    fn rates(&mut self, used: &Use, flexible: &[usize], level: usize, wanted: [f64; 2]) -> Rates {
        let size = usize::from(used.size);
        match used.guests {
            Guests::Nobody => Rates::one([0.0; 2]),
            Guests::One(guest) => {
                let at = usize::from(guest);
                let room = self.room(size, used.set, flexible[at], level);
                let mut rates = [0.0; 2];
                rates[at] = room.min(wanted[at]);
                if room > 0.0 { Rates::one(rates) } else { Rates::default() }
            }
            Guests::Both => self.divisions(size, flexible, level, wanted),
        }
    }

    /// Both flexible demands on a share of their own: a batch of the first, and the most of the second beside it.
    fn divisions(&self, size: usize, flexible: &[usize], level: usize, wanted: [f64; 2]) -> Rates {
        let mut front: Vec<Point<()>> = Vec::new();
        let scene = self.scene;
        let highest = scene.room(size, level, &[], flexible[0]).min(wanted[0]);
        for step in 1..=DIVISIONS_MAX {
            let first = highest * step as f64 / DIVISIONS_MAX as f64;
            let second = scene.room(size, level, &[(flexible[0], first)], flexible[1]);
            if second > 0.0 {
                insert(&mut front, Point { rates: [first, second.min(wanted[1])], by: () });
            }
        }
        let mut rates = Rates::default();
        front.iter().for_each(|point| rates.push(point.rates));
        rates
    }

    /// The GPUs that were found, with flexible rates scaled down to what is wanted.
    fn board(&self, flexible: &[usize], wanted: [f64; 2], found: &[OnGpu]) -> Board {
        let uses = || found.iter().flat_map(|gpu| gpu.uses.iter().flatten());
        let scale: [f64; 2] = std::array::from_fn(|at| {
            let served: f64 = uses().map(|(_, rates)| rates[at]).sum();
            if served > wanted[at] { wanted[at] / served } else { 1.0 }
        });
        let slot = |&(used, rates): &(Use, [f64; 2])| {
            let full = members(used.set).map(|item| (item, self.scene.items[item].rate));
            let guests = flexible.iter().enumerate().map(|(at, &f)| (f, rates[at] * scale[at]));
            let guests = guests.filter(|&(_, rate)| rate > 0.0);
            Slot { size: usize::from(used.size), members: full.chain(guests).collect() }
        };
        let gpu = |gpu: &OnGpu| Gpu { slots: gpu.uses.iter().flatten().map(slot).collect() };
        Board { gpus: found.iter().map(gpu).collect() }
    }
}

impl Use {
    fn guests(&self, flexible: &[usize]) -> Set {
        match self.guests {
            Guests::Nobody => 0,
            Guests::One(guest) => 1 << flexible[usize::from(guest)],
            Guests::Both => flexible.iter().fold(0, |bits, &item| bits | 1 << item),
        }
    }

    /// The noise that it makes.
    fn level(&self, flexible: &[usize]) -> usize {
        (Set::BITS - (self.set | self.guests(flexible)).leading_zeros()) as usize
    }
}

/// A few pairs of rates.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    pairs: [[f64; 2]; DIVISIONS_MAX],
    count: usize,
}

impl Rates {
    fn one(pair: [f64; 2]) -> Self {
        let mut rates = Self::default();
        rates.push(pair);
        rates
    }

    fn all(&self) -> &[[f64; 2]] {
        &self.pairs[..self.count]
    }

    fn push(&mut self, pair: [f64; 2]) {
        self.pairs[self.count] = pair;
        self.count += 1;
    }
}

/// The members of a set, ascending.
fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize)
        .take((Set::BITS - set.leading_zeros()) as usize)
        .filter(move |item| set >> item & 1 == 1)
}

/// All subsets of a set, with the empty one and itself.
fn subsets(set: Set) -> impl Iterator<Item = Set> {
    let mut next = Some(set);
    std::iter::from_fn(move || {
        let now = next?;
        next = (now != 0).then(|| (now - 1) & set);
        Some(now)
    })
}

fn plus(a: [f64; 2], b: [f64; 2], most: [f64; 2]) -> [f64; 2] {
    std::array::from_fn(|at| (a[at] + b[at]).min(most[at]))
}

/// Adds a point, unless another one is at least as good; takes those away that it makes pointless.
fn insert<T>(front: &mut Vec<Point<T>>, point: Point<T>) {
    let beats = |a: &[f64; 2], b: &[f64; 2]| (0..2).all(|at| a[at] >= b[at] - CLOSE);
    if front.iter().any(|other| beats(&other.rates, &point.rates)) {
        return;
    }
    front.retain(|other| !beats(&point.rates, &other.rates));
    front.push(point);
}

/// The table of no GPU: it holds nobody.
fn start(others: Set) -> Table<Sum> {
    let mut table: Table<Sum> = vec![Vec::new(); others as usize + 1];
    let by = Sum { last: 0, before: 0, with: 0 };
    table[0].push(Point { rates: [0.0; 2], by });
    table
}

/// The table of one GPU more.
fn add(before: &Table<Sum>, single: &Table<OnGpu>, others: Set, wanted: [f64; 2]) -> Table<Sum> {
    let mut table: Table<Sum> = vec![Vec::new(); before.len()];
    for set in subsets(others) {
        let front = &mut table[set as usize];
        for last in subsets(set) {
            let points = &single[last as usize];
            for (at, one) in before[(set & !last) as usize].iter().enumerate() {
                for (with, other) in points.iter().enumerate() {
                    let by = Sum { last, before: at as u32, with: with as u32 };
                    insert(front, Point { rates: plus(one.rates, other.rates, wanted), by });
                }
            }
        }
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
