//! Whole demands on whole GPUs, in rounds (Nexus 6.1): which of them share one, so that the fewest
//! GPUs are enough.
//!
//! A demand that fills GPUs of its own gets them first (`saturate`); what is left of it, and
//! everything smaller, is packed. The planners differ only in how they look for sets that fit, and
//! all of them use the same test of a set: the shortest round (`crate::round`), and the memory.

mod best_fit;
mod bound;
mod columns;
mod exact;
mod greedy;
mod incremental;
mod occupancy;

mod simplex;
mod subsets;

use fermata_core::Span;

use crate::problem::{Demand, Kind};
use crate::round::{Turn, shortest_round};

pub use best_fit::best_fit;
pub use bound::{configuration_bound, fluid_bound};
pub use exact::{Exact, exact};
pub use greedy::{oblivious, squishy};
pub use incremental::{Repacked, repack};
pub use occupancy::occupancy;

/// What is to be packed: a demand, or what is left of one when the GPUs that it fills are taken
/// off.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a> {
    /// Its place in the list of demands.
    pub demand: usize,
    /// What it asks of a GPU.
    pub turn: Turn<'a>,
    /// Bytes of its weights.
    pub memory: u64,
    /// Bytes that it needs while it runs.
    pub workspace: u64,
}

/// Sessions that share a GPU, by their places in the list of sessions, in ascending order.
pub type Set = Vec<usize>;

/// A demand that fills GPUs of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturated {
    /// Its place in the list of demands.
    pub demand: usize,
    /// How many GPUs it fills.
    pub gpus: usize,
    /// The batch that runs on them, back to back.
    pub batch: usize,
    /// Requests a second of each.
    pub rate: f64,
}

/// What is left of a demand is nothing, if it is less than this part of it.
const NOTHING: f64 = 1e-9;

impl<'a> Session<'a> {
    /// A demand as it is on a kind of GPU; `None` if it does not run there.
    pub fn new(demand: usize, asked: &'a Demand, kind: usize) -> Option<Self> {
        let profile = asked.profiles[kind].as_ref()?;
        let turn = Turn { profile, slo: asked.slo, rate: asked.rate };
        Some(Self { demand, turn, memory: asked.memory, workspace: asked.workspace })
    }

    /// The batch of a GPU that runs nothing else, back to back: the largest with `2 l(b) <= slo`,
    /// since who just misses a batch waits for all of it. Zero, if there is none.
    pub fn saturated_batch(&self) -> usize {
        self.turn.profile.largest_within(Span(self.turn.slo.0 / 2))
    }

    /// Requests a second of a GPU that runs nothing else. Zero, if it cannot promise any.
    pub fn peak(&self) -> f64 {
        match self.saturated_batch() {
            0 => 0.0,
            batch => 1e9 / self.turn.profile.cost(batch),
        }
    }
}

/// Takes off the GPUs that sessions fill. What is left of each fits on one GPU.
///
/// Sessions that no GPU can serve at all must have been taken out before.
pub fn saturate<'a>(sessions: &[Session<'a>]) -> (Vec<Saturated>, Vec<Session<'a>>) {
    let (mut saturated, mut rest) = (Vec::new(), Vec::new());
    for session in sessions {
        let peak = session.peak();
        assert!(peak > 0.0, "a session that cannot be served in rounds is not packed");
        let whole = (session.turn.rate / peak + NOTHING).floor();
        if whole >= 1.0 {
            let (demand, batch) = (session.demand, session.saturated_batch());
            saturated.push(Saturated { demand, gpus: whole as usize, batch, rate: peak });
        }
        let rate = session.turn.rate - whole * peak;
        // A demand at rest is packed too: its turn must be kept.
        if whole < 1.0 || rate > session.turn.rate * NOTHING {
            rest.push(Session { turn: Turn { rate, ..session.turn }, ..*session });
        }
    }
    (saturated, rest)
}

/// Sessions and the memory of the GPUs on which they are packed.
#[derive(Clone, Debug)]
pub struct Packer<'a> {
    /// What is packed. Each fits alone.
    pub sessions: Vec<Session<'a>>,
    /// Bytes of each GPU.
    pub memory: u64,
}

impl<'a> Packer<'a> {
    /// Sessions on GPUs of this kind.
    pub fn new(sessions: Vec<Session<'a>>, kind: &Kind) -> Self {
        Self { sessions, memory: kind.memory }
    }

    /// The shortest round of a set on one GPU; `None` if it does not fit.
    pub fn round(&self, set: &[usize]) -> Option<Span> {
        if !self.remembers(set) {
            return None;
        }
        shortest_round(set.iter().map(|&at| &self.sessions[at].turn))
    }

    /// Is there memory for the set?
    fn remembers(&self, set: &[usize]) -> bool {
        let members = || set.iter().map(|&at| &self.sessions[at]);
        let weights = members().fold(0u64, |sum, each| sum.saturating_add(each.memory));
        let workspace = members().map(|each| each.workspace).max().unwrap_or(0);
        weights.saturating_add(workspace) <= self.memory
    }

    /// Every session is in one set, and every set fits.
    pub fn assert_packed(&self, sets: &[Set]) {
        let mut seen = vec![false; self.sessions.len()];
        for set in sets {
            assert!(self.round(set).is_some(), "every set fits: {set:?}");
            for &at in set {
                assert!(!std::mem::replace(&mut seen[at], true), "no session is packed twice");
            }
        }
        assert!(seen.iter().all(|&seen| seen), "every session is packed");
    }
}

/// A GPU that is being filled: its round is known, so that one more session is tested quickly.
#[derive(Clone, Debug)]
pub(crate) struct Bin {
    pub(crate) members: Set,
    pub(crate) round: Span,
    /// No round may be longer than this, for the members as they are: their batches only grow with
    /// it.
    pub(crate) longest: Span,
    weights: u64,
    workspace: u64,
}

impl Bin {
    pub(crate) fn empty() -> Self {
        Self {
            members: Vec::new(),
            round: Span::ZERO,
            longest: Span::MAX,
            weights: 0,
            workspace: 0,
        }
    }

    /// How much longer the round may be at the most.
    #[inline]
    pub(crate) fn room(&self) -> Span {
        self.longest - self.round
    }

    /// The round with one more session; `None` if it does not fit.
    #[inline]
    pub(crate) fn round_with(&self, packer: &Packer<'_>, at: usize) -> Option<Span> {
        let session = &packer.sessions[at];
        // The new round is at least the old one and the new batch: most tests end here.
        let mut round = self.round + session.turn.latency(self.round);
        if round > self.longest || round + session.turn.profile.shortest() > session.turn.slo {
            return None;
        }
        let weights = self.weights.saturating_add(session.memory);
        if weights.saturating_add(self.workspace.max(session.workspace)) > packer.memory {
            return None;
        }
        loop {
            let mut sum = Span::ZERO;
            for &member in self.members.iter().chain(std::iter::once(&at)) {
                let turn = &packer.sessions[member].turn;
                let latency = turn.latency(round);
                if round + latency > turn.slo {
                    return None;
                }
                sum += latency;
            }
            if sum <= round {
                return Some(round);
            }
            round = sum;
        }
    }

    /// Takes a session in, with the round that `round_with` found.
    pub(crate) fn push(&mut self, packer: &Packer<'_>, at: usize, round: Span) {
        let session = &packer.sessions[at];
        self.members.push(at);
        self.round = round;
        self.weights = self.weights.saturating_add(session.memory);
        self.workspace = self.workspace.max(session.workspace);
        let longest = |&member: &usize| {
            let turn = &packer.sessions[member].turn;
            turn.slo - turn.latency(round)
        };
        self.longest = self.members.iter().map(longest).min().unwrap_or(Span::MAX);
    }

    /// The share of the time that is execution, if the round is waited for.
    pub(crate) fn filled(&self) -> f64 {
        self.round.0 as f64 / self.longest.0.max(1) as f64
    }
}

#[cfg(test)]
pub(crate) mod tests;
