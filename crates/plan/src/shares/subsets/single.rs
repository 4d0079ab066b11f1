//! What one GPU can do: which sets of demands it holds, on shares or as a whole, with how much of
//! the flexible ones.

use std::rc::Rc;

use super::super::scene::Scene;
use super::aim::{Aim, CLOSE, FLEXIBLE_MAX, Point, Served, Set, Use, insert, members};

/// Shares are divided between flexible demands in steps of this part, and where nothing is left of
/// one elsewhere.
const STEPS: u32 = 4;

/// What is known about sets on shares, found out when it is needed.
pub(super) struct Search<'a> {
    pub(super) scene: &'a Scene,
    /// All sets that a share may hold.
    pub(super) sets: Vec<Set>,
    /// The place of a set in that list, by its bits.
    index: Vec<u32>,
    /// By size and place of the set: the most noise beside which all of it is served, less than
    /// zero if never.
    bears: Vec<Vec<i32>>,
    /// By place of the set.
    bytes: Vec<u64>,
    /// By size and place of the set, then by guest and level: the most of the guest that is served
    /// beside the set; NaN if unknown, and empty if nothing is known of the set.
    rooms: Vec<Vec<f64>>,
}

/// A GPU: one use of the whole, or two of shares, each with what it serves of the flexible demands.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnGpu {
    pub(super) uses: [Option<(Use, Served)>; 2],
}

/// By set of the others.
pub(super) type Table<T> = Vec<Vec<Point<T>>>;

impl<'a> Search<'a> {
    pub(super) fn new(scene: &'a Scene) -> Self {
        let count = scene.items.len();
        let all = 1_u32 << count;
        let fits = |set: &Set| set.count_ones() as usize <= scene.models;
        let sets: Vec<Set> = (0..all).filter(fits).collect();
        let mut index = vec![u32::MAX; all as usize];
        sets.iter().zip(0..).for_each(|(&set, at)| index[set as usize] = at);
        let bytes = sets.iter().map(|&set| scene.bytes(members(set))).collect();
        let rooms = vec![Vec::new(); scene.sizes.len() * sets.len()];
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
        let count = self.scene.items.len();
        let at = size * self.sets.len() + self.index[set as usize] as usize;
        let rooms = &mut self.rooms[at];
        if rooms.is_empty() {
            rooms.resize(count * (count + 1), f64::NAN);
        }
        let room = &mut rooms[guest * (count + 1) + level];
        if room.is_nan() {
            let full: Vec<(usize, f64)> =
                members(set).map(|item| (item, self.scene.items[item].rate)).collect();
            *room = self.scene.room(size, level, &full, guest);
        }
        *room
    }

    /// What one of the GPUs can do, and the most load that one can bear; `None` if all together
    /// cannot bear enough.
    pub(super) fn single(&mut self, aim: &Aim<'_>, gpus: usize) -> Option<(Table<OnGpu>, f64)> {
        let mut table: Table<OnGpu> = vec![Vec::new(); aim.others as usize + 1];
        let scene = self.scene;
        let mut ways: Vec<Ways> = (0..scene.sizes.len()).map(|size| self.ways(aim, size)).collect();
        let mut whole = ways.pop().expect("there is always the whole GPU");
        for at in 0..whole.uses.len() {
            let one = whole.uses[at];
            if !scene.holds(whole.bytes[at], 0) {
                continue;
            }
            for &served in self.served(aim, &mut whole, at, 0).iter() {
                let by = OnGpu { uses: [Some((one, served)), None] };
                aim.insert(one.set, &mut table[one.set as usize], Point { served, by });
            }
        }
        for &(p, q) in &scene.splits {
            let (mut small, mut large) = (ways[p].clone(), ways[q].clone());
            for at in 0..small.uses.len() {
                let one = small.uses[at];
                // Halves may be swapped.
                for with in if p == q { at } else { 0 }..large.uses.len() {
                    let other = large.uses[with];
                    if one.set & other.set != 0
                        || small.bears[at] < large.levels[with]
                        || large.bears[with] < small.levels[at]
                        || !scene.holds(small.bytes[at], large.bytes[with])
                    {
                        continue;
                    }
                    let ours = self.served(aim, &mut small, at, large.levels[with]);
                    let theirs = self.served(aim, &mut large, with, small.levels[at]);
                    for ours in ours.iter() {
                        for theirs in theirs.iter() {
                            let served = aim.plus(ours, theirs);
                            let by = OnGpu { uses: [Some((one, *ours)), Some((other, *theirs))] };
                            let set = one.set | other.set;
                            aim.insert(set, &mut table[set as usize], Point { served, by });
                        }
                    }
                }
            }
            (ways[p], ways[q]) = (small, large);
        }
        let loads = table.iter().enumerate().flat_map(|(set, front)| {
            front.iter().map(move |point| aim.load(set as Set, &point.served))
        });
        let best = loads.fold(0.0, f64::max);
        let least = aim.whole_load() - best * (gpus - 1) as f64;
        if best + CLOSE < least {
            return None;
        }
        for (set, front) in table.iter_mut().enumerate() {
            aim.thin(set as Set, front, least);
        }
        Some((table, best))
    }

    /// All ways to use a share of this size.
    fn ways(&self, aim: &Aim<'_>, size: usize) -> Ways {
        let mut ways = Ways::default();
        for (&set, &bears) in self.sets.iter().zip(&self.bears[size]) {
            if set & !aim.others != 0 || bears < 0 {
                continue;
            }
            for guests in 0..1_u8 << aim.flexible.len() {
                let many = (set.count_ones() + guests.count_ones()) as usize;
                // Several in part beside others are seldom worth their time, where there are
                // others.
                if many > self.scene.models || set != 0 && guests.count_ones() > 1 {
                    continue;
                }
                let used = Use { size: size as u8, set, guests };
                let on = aim.on(&used);
                ways.uses.push(used);
                ways.bears.push(bears);
                ways.levels.push((Set::BITS - on.leading_zeros()) as i32);
                ways.bytes.push(self.bytes[self.index[on as usize] as usize]);
            }
        }
        ways.served = vec![None; ways.uses.len() * (self.scene.items.len() + 1)];
        ways
    }

    /// How much of the flexible demands a use serves beside so much noise; nothing at all if it
    /// cannot be.
    fn served(&mut self, aim: &Aim<'_>, ways: &mut Ways, at: usize, level: i32) -> Divisions {
        let used = ways.uses[at];
        let cell = at * (self.scene.items.len() + 1) + level as usize;
        if let Some(known) = &ways.served[cell] {
            return known.clone();
        }
        let found: Divisions = match used.guests.count_ones() {
            0 => Rc::new([[0.0; FLEXIBLE_MAX]]),
            1 => {
                let (place, item) = aim.guests(&used).next().expect("there is one guest");
                let room = self.room(usize::from(used.size), used.set, item, level as usize);
                let mut served = [0.0; FLEXIBLE_MAX];
                served[place] = room.min(aim.wanted[place]);
                (room > 0.0).then_some(served).into_iter().collect()
            }
            _ => self.divide(aim, &used, level as usize),
        };
        ways.served[cell] = Some(found.clone());
        found
    }

    /// Several guests on a share of their own: some of all but one, and as much of that one as
    /// there is room for.
    fn divide(&self, aim: &Aim<'_>, used: &Use, level: usize) -> Divisions {
        let mut guests: Vec<(usize, usize)> = aim.guests(used).collect();
        let mut front: Vec<Point<()>> = Vec::new();
        for _ in 0..guests.len() {
            guests.rotate_left(1);
            let place = (usize::from(used.size), level);
            self.divide_among(aim, place, &guests, &mut Vec::new(), &mut front);
        }
        front.iter().map(|point| point.served).collect()
    }

    fn divide_among(
        &self,
        aim: &Aim<'_>,
        (size, level): (usize, usize),
        guests: &[(usize, usize)],
        members: &mut Vec<(usize, f64)>,
        front: &mut Vec<Point<()>>,
    ) {
        let (at, item) = guests[members.len()];
        let highest = self.scene.room(size, level, members, item).min(aim.wanted[at]);
        if highest <= 0.0 {
            return;
        }
        if members.len() + 1 == guests.len() {
            let mut served = [0.0; FLEXIBLE_MAX];
            served[at] = highest;
            guests.iter().zip(members).for_each(|(guest, member)| served[guest.0] = member.1);
            insert(front, Point { served, by: () });
            return;
        }
        let steps = (1..STEPS).map(|step| highest * f64::from(step) / f64::from(STEPS));
        // Rests of two at once would be too many to try.
        let rests =
            aim.rests[at].iter().copied().filter(|&rest| rest < highest && guests.len() == 2);
        for rate in steps.chain(rests) {
            members.push((item, rate));
            self.divide_among(aim, (size, level), guests, members, front);
            members.pop();
        }
    }
}

/// All ways to use a share of one size, with what is known of each.
#[derive(Clone, Default)]
struct Ways {
    uses: Vec<Use>,
    /// The most noise that its set bears, its guests aside.
    bears: Vec<i32>,
    /// The noise that it makes.
    levels: Vec<i32>,
    bytes: Vec<u64>,
    /// What it serves of the flexible demands, by use and noise, once that was asked for.
    served: Vec<Option<Divisions>>,
}

/// Ways to divide a share between flexible demands.
type Divisions = Rc<[Served]>;
