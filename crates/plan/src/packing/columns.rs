//! Sets that are worth having at given prices: the pricing step of column generation.
//!
//! A set is worth its members' prices. The search adds one item after another to a GPU. At each step every item that
//! still fits has a weight, the time its batch would take: no larger set has it for less. What the best of the rest
//! could add is then at most a knapsack of the room that is left, taken by fractions.

use fermata_core::Span;

use super::{Bin, Packer, Set};

/// Sessions that are taken together or not at all, in packings of which some parts are decided already.
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

/// A set must be worth this much more than a GPU.
pub(super) const WORTH: f64 = 1e-6;

impl Items {
    /// Every session by itself.
    pub(super) fn single(sessions: usize) -> Self {
        Self {
            items: (0..sessions).map(|at| vec![at]).collect(),
            apart: vec![Vec::new(); sessions],
        }
    }

    /// Sets of items that are worth more than a GPU at these prices, the best for each densest member. Stops when it has
    /// found `enough`, since new prices are then worth more than more sets; and when it has tried as many additions as
    /// there are `steps`, which it counts down.
    pub(super) fn price(
        &self,
        packer: &Packer<'_>,
        prices: &[f64],
        enough: usize,
        steps: &mut usize,
    ) -> Found {
        let worthy = (0..self.items.len()).filter(|&item| prices[item] > 0.0).collect();
        let mut search = Search {
            packer,
            items: self,
            prices,
            steps,
            best: 0.0,
            found: None,
            chosen: Vec::new(),
        };
        let roots = search.candidates(&Bin::empty(), worthy);
        let (mut sets, mut most) = (Vec::new(), 1.0 + WORTH);
        for at in 0..roots.len() {
            search.best = 1.0 + WORTH;
            search.add(&roots, at, 0.0);
            if *search.steps == 0 || sets.len() == enough {
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
    prices: &'a [f64],
    steps: &'a mut usize,
    /// Only sets that are worth more are of interest.
    best: f64,
    /// The set that is worth as much, if one was found.
    found: Option<Set>,
    chosen: Set,
}

struct Candidate {
    item: usize,
    price: f64,
    weight: f64,
    bin: Bin,
}

impl Search<'_> {
    /// Those of the items that fit on the GPU, the densest first.
    fn candidates(&self, bin: &Bin, items: Vec<usize>) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> =
            items.into_iter().filter_map(|item| self.candidate(bin, item)).collect();
        candidates.sort_by(|a, b| b.density().total_cmp(&a.density()).then(a.item.cmp(&b.item)));
        candidates
    }

    fn candidate(&self, bin: &Bin, item: usize) -> Option<Candidate> {
        let filled = self.items.put(self.packer, bin, item)?;
        let latency = |&at: &usize| self.packer.sessions[at].turn.latency(filled.round);
        let weight = self.items.items[item].iter().map(latency).fold(Span::ZERO, |sum, l| sum + l);
        Some(Candidate { item, price: self.prices[item], weight: weight.0 as f64, bin: filled })
    }

    /// Adds the candidate at this place to the chosen ones, then any of those after it, in all ways that could be worth
    /// more than the best.
    fn add(&mut self, candidates: &[Candidate], at: usize, value: f64) {
        if *self.steps == 0 {
            return;
        }
        *self.steps -= 1;
        let Candidate { item, price, ref bin, .. } = candidates[at];
        let value = value + price;
        // The rest is less dense, and its room ends where the candidate's objective does.
        let room = bin.room().0 as f64;
        let dense = candidates.get(at + 1).map_or(0.0, Candidate::density);
        if value + dense * room <= self.best {
            return;
        }
        self.chosen.push(item);
        if value > self.best {
            let mut set = self.chosen.clone();
            set.sort_unstable();
            (self.best, self.found) = (value, Some(set));
        }
        let others = &self.items.apart[item];
        let rest = candidates[at + 1..].iter().map(|each| each.item);
        let rest = rest.filter(|item| others.binary_search(item).is_err()).collect();
        let rest = self.candidates(bin, rest);
        for next in 0..rest.len() {
            if value + knapsack(&rest[next..], room) <= self.best {
                break;
            }
            self.add(&rest, next, value);
        }
        self.chosen.pop();
    }
}

impl Candidate {
    /// What it is worth for the time it takes.
    fn density(&self) -> f64 {
        self.price / self.weight
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
