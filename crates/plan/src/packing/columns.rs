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
    /// Sets of items that are worth more than one GPU, the best last.
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

    /// Sets of items that are worth more than a GPU at these prices. Stops when it has found `enough`, since new prices
    /// are then worth more than more sets; and when it has tried as many additions as there are `steps`, which it counts
    /// down.
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
            enough,
            steps,
            best: 1.0 + WORTH,
            found: Vec::new(),
            chosen: Vec::new(),
        };
        search.extend(&Bin::empty(), 0.0, worthy);
        let complete = *search.steps > 0 && search.found.len() < enough;
        Found { most: complete.then_some(search.best), sets: search.found }
    }

    /// A GPU with one more item; `None` if it does not fit.
    pub(super) fn put(&self, packer: &Packer<'_>, bin: &Bin, item: usize) -> Option<Bin> {
        let mut bin = bin.clone();
        for &session in &self.items[item] {
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
    enough: usize,
    steps: &'a mut usize,
    best: f64,
    found: Vec<Set>,
    chosen: Set,
}

struct Candidate {
    item: usize,
    price: f64,
    weight: f64,
    bin: Bin,
}

impl Search<'_> {
    /// Adds any of these items to the GPU, in all ways that could be worth more than the best.
    fn extend(&mut self, bin: &Bin, value: f64, items: Vec<usize>) {
        if value > self.best {
            self.best = value;
            let mut set = self.chosen.clone();
            set.sort_unstable();
            self.found.push(set);
        }
        let mut candidates: Vec<Candidate> =
            items.into_iter().filter_map(|item| self.candidate(bin, item)).collect();
        let density = |each: &Candidate| each.price / each.weight;
        candidates.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.item.cmp(&b.item)));
        let room = if bin.members.is_empty() { f64::INFINITY } else { bin.room().0 as f64 };
        for at in 0..candidates.len() {
            if value + knapsack(&candidates[at..], room) <= self.best {
                return;
            }
            if *self.steps == 0 || self.found.len() >= self.enough {
                return;
            }
            *self.steps -= 1;
            let candidate = &candidates[at];
            // The rest is less dense, and its room ends where the candidate's objective does.
            let dense = candidates.get(at + 1).map_or(0.0, density);
            if value + candidate.price + dense * candidate.bin.room().0 as f64 <= self.best {
                continue;
            }
            let others = &self.items.apart[candidate.item];
            let rest = candidates[at + 1..].iter().map(|each| each.item);
            let rest = rest.filter(|item| others.binary_search(item).is_err()).collect();
            self.chosen.push(candidate.item);
            self.extend(&candidate.bin, value + candidate.price, rest);
            self.chosen.pop();
        }
    }

    fn candidate(&self, bin: &Bin, item: usize) -> Option<Candidate> {
        let filled = self.items.put(self.packer, bin, item)?;
        let latency = |&at: &usize| self.packer.sessions[at].turn.latency(filled.round);
        let weight = self.items.items[item].iter().map(latency).fold(Span::ZERO, |sum, l| sum + l);
        Some(Candidate { item, price: self.prices[item], weight: weight.0 as f64, bin: filled })
    }
}

/// The most that these can add in the room, taken by fractions, the densest first. On an empty GPU the first decides
/// how much room there is, so no more is known than that they may all fit.
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
