//! Sets that are worth having at given prices: the pricing step of column generation.
//!
//! A set is worth its members' prices. The search adds one item after another to a GPU. At each
//! step every item that still fits has a weight, the time its batch would take: no larger set has
//! it for less. What the best of the rest could add is then at most a knapsack of the room that is
//! left, taken by fractions.

use std::cmp::Ordering;

use fermata_core::Span;

use super::{Bin, Packer, Set};

/// Sessions that are taken together or not at all, in packings of which some parts are decided
/// already.
#[derive(Clone, Debug)]
pub(super) struct Items {
    /// The sessions of each item.
    pub(super) items: Vec<Set>,
    /// Items that must not be on one GPU: for each, in ascending order.
    pub(super) apart: Vec<Vec<usize>>,
}

/// What a search found.
pub(super) struct Found {
    /// Sets of items that are worth more than one GPU.
    pub(super) sets: Vec<Set>,
    /// Nothing is worth more than this; `None` if the search was cut short.
    pub(super) most: Option<f64>,
}

/// How hard is searched.
pub(super) struct Effort {
    /// How many more additions to sets may be tried.
    pub(super) steps: usize,
    /// New prices are worth more than more sets than this.
    pub(super) enough: usize,
    /// A set is of interest if it is worth this much more than a GPU.
    pub(super) worth: f64,
    /// Where to begin: a search that had enough goes on there with the next prices, so that all
    /// items have their turn.
    pub(super) first: usize,
}

impl Items {
    /// Every session by itself.
    pub(super) fn single(sessions: usize) -> Self {
        Self {
            items: (0..sessions).map(|at| vec![at]).collect(),
            apart: vec![Vec::new(); sessions],
        }
    }

    /// Sets of items that are worth more than a GPU at these prices, the best for each densest
    /// member. Stops when it has found as many as are enough, or has no steps left.
    pub(super) fn price(&self, packer: &Packer<'_>, prices: &[f64], effort: &mut Effort) -> Found {
        let steps = &mut effort.steps;
        let mut search =
            Search { packer, items: self, steps, best: 0.0, found: None, chosen: Vec::new() };
        let empty = Bin::empty();
        let worthy = (0..self.items.len()).filter(|&item| prices[item] > 0.0);
        let roots = worthy.filter_map(|item| {
            Some(Candidate { item, price: prices[item], weight: search.weigh(&empty, item)? })
        });
        let roots = List::new(roots.collect());
        let count = roots.candidates.len();
        let (mut sets, mut most) = (Vec::new(), 1.0 + effort.worth);
        for tried in 0..count {
            search.best = 1.0 + effort.worth;
            search.add(&empty, &roots, (effort.first + tried) % count, 0.0);
            if *search.steps == 0 || sets.len() == effort.enough {
                effort.first += tried;
                return Found { sets, most: None };
            }
            most = most.max(search.best);
            sets.extend(search.found.take());
        }
        Found { sets, most: Some(most) }
    }

    /// A GPU with one more item; `None` if it does not fit.
    pub(super) fn put(&self, packer: &Packer<'_>, bin: &Bin, item: usize) -> Option<Bin> {
        let (&first, others) = self.items[item].split_first().expect("an item has a session");
        // Most do not fit: that is found out before anything is copied.
        let round = bin.round_with(packer, first)?;
        let mut bin = bin.clone();
        bin.push(packer, first, round);
        for &session in others {
            let round = bin.round_with(packer, session)?;
            bin.push(packer, session, round);
        }
        Some(bin)
    }
}

struct Search<'a> {
    packer: &'a Packer<'a>,
    items: &'a Items,
    steps: &'a mut usize,
    /// Only sets that are worth more are of interest.
    best: f64,
    /// The set that is worth as much, if one was found.
    found: Option<Set>,
    chosen: Set,
}

#[derive(Clone, Copy)]
struct Candidate {
    item: usize,
    price: f64,
    weight: f64,
}

impl Search<'_> {
    /// How long the item's batches would take on the GPU; `None` if it does not fit.
    fn weigh(&self, bin: &Bin, item: usize) -> Option<f64> {
        let sessions = &self.items.items[item];
        let round = match sessions[..] {
            // Most do not fit, and most items are one session: nothing is copied to find that out.
            [session] => bin.round_with(self.packer, session)?,
            _ => self.items.put(self.packer, bin, item)?.round,
        };
        let latency = |&at: &usize| self.packer.sessions[at].turn.latency(round);
        Some(sessions.iter().map(latency).fold(Span::ZERO, |sum, each| sum + each).0 as f64)
    }

    /// Adds the candidate at this place to the chosen ones, then any of those after it, in all ways
    /// that could be worth more than the best. The candidates fit on the GPU and are in the order
    /// of their density.
    fn add(&mut self, bin: &Bin, list: &List, at: usize, value: f64) {
        if *self.steps == 0 {
            return;
        }
        *self.steps -= 1;
        let Candidate { item, price, .. } = list.candidates[at];
        let bin = self.items.put(self.packer, bin, item).expect("a candidate fits");
        let value = value + price;
        self.chosen.push(item);
        if value > self.best {
            let mut set = self.chosen.clone();
            set.sort_unstable();
            (self.best, self.found) = (value, Some(set));
        }
        // The rest is less dense, and its room ends where an objective does.
        let (rest, room) = (&list.candidates[at + 1..], bin.room().0 as f64);
        let dense = rest.first().map_or(0.0, Candidate::density);
        if room >= list.lightest[at + 1] && value + dense * room > self.best {
            let rest = self.rest(&bin, rest, item, value, dense);
            for next in 0..rest.candidates.len() {
                if value + knapsack(&rest.candidates[next..], room) <= self.best {
                    break;
                }
                self.add(&bin, &rest, next, value);
            }
        }
        self.chosen.pop();
    }

    /// Those that still fit, may be together with the item, and could be a part of something
    /// better.
    fn rest(
        &self,
        bin: &Bin,
        candidates: &[Candidate],
        item: usize,
        value: f64,
        dense: f64,
    ) -> List {
        let (others, room) = (&self.items.apart[item], bin.room().0 as f64);
        let rest = candidates
            .iter()
            // What they took on a GPU with less on it they take here at least.
            .filter(|each| value + each.price + dense * (room - each.weight) > self.best)
            .filter(|each| others.binary_search(&each.item).is_err())
            .filter_map(|each| Some(Candidate { weight: self.weigh(bin, each.item)?, ..*each }));
        List::new(rest.collect())
    }
}

/// Candidates in the order of their density.
struct List {
    candidates: Vec<Candidate>,
    /// The least weight of those from each place on; where less room is left, none of them fits.
    lightest: Vec<f64>,
}

impl List {
    fn new(mut candidates: Vec<Candidate>) -> Self {
        candidates.sort_by(Candidate::denser);
        let mut lightest = vec![f64::INFINITY; candidates.len() + 1];
        for (at, candidate) in candidates.iter().enumerate().rev() {
            lightest[at] = lightest[at + 1].min(candidate.weight);
        }
        Self { candidates, lightest }
    }
}

impl Candidate {
    /// What it is worth for the time it takes.
    fn density(&self) -> f64 {
        self.price / self.weight
    }

    /// The densest first.
    fn denser(&self, other: &Self) -> Ordering {
        other.density().total_cmp(&self.density()).then(self.item.cmp(&other.item))
    }
}

/// The most that these can add in the room, taken by fractions, the densest first.
fn knapsack(candidates: &[Candidate], mut room: f64) -> f64 {
    let mut value = 0.0;
    for candidate in candidates {
        if candidate.weight >= room {
            return value + candidate.price * room / candidate.weight;
        }
        room -= candidate.weight;
        value += candidate.price;
    }
    value
}
