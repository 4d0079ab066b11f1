//! The fewest GPUs, proven: a table of subsets for few sessions, branch and price for many.
//!
//! The configuration program takes fractions of sets so that every session is covered once; its
//! value is a lower bound, and for packings like these it rounds up to the answer nearly always.
//! Sets are generated as prices ask for them (`columns`). Where the solution is fractional, two
//! sessions that are together by a fraction are put together, or kept apart (Ryan and Foster): both
//! leave a smaller problem of the same form.

use std::collections::BTreeSet;

use super::best_fit::best_fit;
use super::bound::fluid_bound;
use super::columns::{Effort, Items};
use super::greedy::{sorted, squishy};
use super::simplex::Covering;
use super::{Bin, Packer, Set, subsets};

/// A packing, and what is known about it.
#[derive(Clone, Debug)]
pub struct Exact {
    /// Who shares a GPU.
    pub sets: Vec<Set>,
    /// No packing has fewer sets.
    pub lower_bound: usize,
}

/// How many additions to sets are tried, over all subproblems, before the best packing so far is
/// taken: a few seconds. Most problems need a thousandth of it.
const STEPS_MAX: usize = 3_000_000;
/// One pricing ends with so many sets.
const ENOUGH: usize = 60;
/// And with those that are worth this much more than a GPU.
const WORTH: f64 = 1e-6;
/// A fraction that is a whole number but for rounding.
const WHOLE: f64 = 1e-6;

impl Exact {
    /// Has no packing fewer sets?
    pub fn is_proven(&self) -> bool {
        self.sets.len() == self.lower_bound
    }
}

/// The fewest sets that fit. Sessions up to about a hundred; with many more the bound is weaker and
/// the answer that of best fit.
pub fn exact(packer: &Packer<'_>) -> Exact {
    if packer.sessions.len() <= subsets::SESSIONS_MAX {
        let sets = subsets::fewest(packer);
        return Exact { lower_bound: sets.len(), sets };
    }
    priced(packer)
}

/// The same by branch and price, however few there are.
pub(super) fn priced(packer: &Packer<'_>) -> Exact {
    let (fitted, merged) = (best_fit(packer), squishy(packer));
    let best = if merged.len() < fitted.len() { merged } else { fitted };
    let effort = Effort { steps: STEPS_MAX, enough: ENOUGH, worth: WORTH, first: 0 };
    let mut search = Search { packer, best, bound: fluid_bound(packer), effort };
    if search.best.len() > search.bound {
        let columns = search.best.clone();
        let items = Items::single(packer.sessions.len());
        let open = search.solve(items, columns, true);
        if !open {
            search.bound = search.best.len();
        }
    }
    Exact { lower_bound: search.bound, sets: search.best }
}

struct Search<'a> {
    packer: &'a Packer<'a>,
    best: Vec<Set>,
    /// No packing at all has fewer sets.
    bound: usize,
    effort: Effort,
}

/// A fractional solution of one subproblem.
struct Relaxed {
    /// Sets of items, with how much is taken of each.
    taken: Vec<(Set, f64)>,
    /// Every set of items that was generated.
    columns: Vec<Set>,
    /// No packing of these items has fewer sets; `None` if the pricing was cut short.
    bound: Option<usize>,
}

impl Search<'_> {
    fn is_done(&self) -> bool {
        self.best.len() <= self.bound
    }

    /// Looks for better packings of these items. Says whether some may have been left unseen.
    fn solve(&mut self, items: Items, columns: Vec<Set>, root: bool) -> bool {
        if self.effort.steps == 0 {
            return true;
        }
        let relaxed = self.relax(&items, columns);
        if let (true, Some(bound)) = (root, relaxed.bound) {
            self.bound = self.bound.max(bound);
        }
        self.round_up(&items, &relaxed.taken);
        if self.is_done() {
            return false;
        }
        match relaxed.bound {
            Some(bound) if bound >= self.best.len() => return false,
            Some(_) => {}
            // Without a bound there is no end of branching.
            None => return true,
        }
        let Some((a, b)) = partly_together(&relaxed.taken) else { return false };
        let (merged, kept) = items.merge(a, b, &relaxed.columns);
        let mut open = self.solve(merged, kept, false);
        if self.is_done() {
            return false;
        }
        let (parted, kept) = items.part(a, b, relaxed.columns);
        open |= self.solve(parted, kept, false);
        open && !self.is_done()
    }

    /// The configuration program of these items.
    fn relax(&mut self, items: &Items, columns: Vec<Set>) -> Relaxed {
        let rows = items.items.len();
        let mut covering = Covering::new(&vec![1.0; rows], 1.0);
        let mut sets: Vec<Set> = (0..rows).map(|item| vec![item]).collect();
        let mut known: BTreeSet<Set> = sets.iter().cloned().collect();
        let first = 2 * rows; // A column of its own for each row, and one that takes off too much.
        let mut add = |covering: &mut Covering, sets: &mut Vec<Set>, set: Set| {
            if known.insert(set.clone()) {
                covering.add(1.0, set.iter().map(|&item| (item, 1.0)).collect());
                sets.push(set);
            }
        };
        columns.into_iter().for_each(|set| add(&mut covering, &mut sets, set));
        let bound = loop {
            covering.solve();
            let prices = covering.prices();
            let found = items.price(self.packer, &prices, &mut self.effort);
            let total: f64 = prices.iter().sum();
            // Prices by which no set is worth more than `most` bound the sets from below (Farley).
            let bound = found.most.map(|most| (total / most - WHOLE).ceil() as usize);
            let done = found.sets.is_empty() || bound.is_some_and(|bound| bound >= self.best.len());
            if done || found.most.is_none() && found.sets.is_empty() {
                break bound;
            }
            let before = sets.len();
            found.sets.into_iter().for_each(|set| add(&mut covering, &mut sets, set));
            if sets.len() == before {
                // What is worth having is there already: rounding errors keep it out.
                break bound;
            }
        };
        let taken = covering
            .taken()
            .filter(|&(column, amount)| amount > WHOLE && !(rows..first).contains(&column))
            .map(|(column, amount)| {
                let set = if column < rows { column } else { column - rows };
                (sets[set].clone(), amount)
            })
            .collect();
        sets.drain(..rows);
        Relaxed { taken, columns: sets, bound }
    }

    /// Takes the sets that are taken most, as far as they do not overlap, and places the rest by
    /// best fit.
    fn round_up(&mut self, items: &Items, taken: &[(Set, f64)]) {
        let mut order: Vec<&(Set, f64)> = taken.iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut placed = vec![false; items.items.len()];
        let mut bins: Vec<Bin> = Vec::new();
        for (set, _) in order {
            let mut bin = Bin::empty();
            for &item in set.iter().filter(|&&item| !placed[item]) {
                bin = items.put(self.packer, &bin, item).expect("a part of what fits does too");
            }
            if !bin.members.is_empty()
                && set.iter().filter(|&&item| !placed[item]).count() * 2 >= set.len()
            {
                set.iter().for_each(|&item| placed[item] = true);
                bins.push(bin);
            }
        }
        for item in (0..items.items.len()).filter(|&item| !placed[item]) {
            let fitting = bins.iter().enumerate().filter_map(|(place, bin)| {
                // A packing may ignore what is to be kept apart: it is a packing all the same.
                Some((place, items.put(self.packer, bin, item)?))
            });
            let fullest = fitting.max_by(|a, b| a.1.filled().total_cmp(&b.1.filled()));
            match fullest {
                Some((place, bin)) => bins[place] = bin,
                None => {
                    let alone = items.put(self.packer, &Bin::empty(), item);
                    bins.push(alone.expect("each item fits alone"));
                }
            }
        }
        if bins.len() < self.best.len() {
            self.best = sorted(bins.into_iter().map(|bin| bin.members).collect());
        }
    }
}

/// The two items of which it is the least certain whether they are together: both branches then
/// raise the bound.
fn partly_together(taken: &[(Set, f64)]) -> Option<(usize, usize)> {
    let mut together = std::collections::BTreeMap::<(usize, usize), f64>::new();
    for (set, amount) in taken {
        for (at, &a) in set.iter().enumerate() {
            for &b in &set[at + 1..] {
                *together.entry((a, b)).or_default() += amount;
            }
        }
    }
    let partly = together.into_iter().filter(|&(_, amount)| amount < 1.0 - 1e-4);
    let even = |amount: f64| (amount - 0.5).abs();
    partly.min_by(|a, b| even(a.1).total_cmp(&even(b.1)).then(a.0.cmp(&b.0))).map(|(pair, _)| pair)
}

impl Items {
    /// The items with two of them made one, and the sets that this leaves possible.
    fn merge(&self, a: usize, b: usize, columns: &[Set]) -> (Self, Vec<Set>) {
        let renumber = |item: usize| match item.cmp(&b) {
            std::cmp::Ordering::Less => item,
            std::cmp::Ordering::Equal => a,
            std::cmp::Ordering::Greater => item - 1,
        };
        let mut items = self.items.clone();
        let moved = items.remove(b);
        items[a].extend(moved);
        let mut apart = vec![Vec::new(); items.len()];
        for (item, others) in self.apart.iter().enumerate() {
            apart[renumber(item)].extend(others.iter().map(|&other| renumber(other)));
        }
        for others in &mut apart {
            others.sort_unstable();
            others.dedup();
        }
        let whole = |set: &&Set| set.contains(&a) == set.contains(&b);
        let kept = columns.iter().filter(whole).map(|set| {
            let mut set: Set = set.iter().map(|&item| renumber(item)).collect();
            set.sort_unstable();
            set.dedup();
            set
        });
        (Self { items, apart }, kept.collect())
    }

    /// The items with two of them kept apart, and the sets that this leaves possible.
    fn part(mut self, a: usize, b: usize, mut columns: Vec<Set>) -> (Self, Vec<Set>) {
        for (one, other) in [(a, b), (b, a)] {
            self.apart[one].push(other);
            self.apart[one].sort_unstable();
        }
        columns.retain(|set| !(set.contains(&a) && set.contains(&b)));
        (self, columns)
    }
}
