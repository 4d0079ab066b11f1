//! A contest between variants: all of them are played the same requests, and those that lose most leave, until one is
//! left. `docs/policy.md` has the reasons.

use fermata_core::Time;

use super::arrivals::{Arrival, Arrivals};
use super::shadow::Shadow;
use super::variant::{DEFAULT, VARIANTS, Variant};
use crate::dispatcher::Dispatcher;

/// After so many requests half of the variants leave; the others go on to twice as many, and so on.
const FIRST_ROUND: usize = 2_048;
const STREAM_MAX: usize = 16_384;
/// No more requests are played than this for each that is remembered: they would tell nothing new.
const TIMES_KNOWN: usize = 16;
/// A model of which nothing was played has lost this share of requests, with the weight of so many.
const PRIOR_LOST: f64 = 0.3;
const PRIOR_OFFERED: f64 = 30.0;
/// The losses of all models count for this much beside those of the model that loses most.
const OTHERS_WEIGHT: f64 = 0.05;
/// With every contest, what earlier ones found counts for this much less.
const MEMORY: f64 = 0.7;
/// Another variant must lose so much less than the one in use.
const ADVANTAGE: f64 = 0.9;
/// Where no model loses more than this share under the default rules, they are used.
const CALM: f64 = 0.001;

/// What contests found of each variant: how much more it loses than the best, as a logarithm, with its weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    sums: [f64; VARIANTS],
    weights: [f64; VARIANTS],
}

/// A contest under way.
#[derive(Clone, Debug)]
pub(super) struct Contest {
    /// The dispatcher as it was at the beginning, and when that was.
    start: Dispatcher,
    from: Time,
    variants: [Variant; VARIANTS],
    stream: Vec<Arrival>,
    /// How many requests of the stream are to be played in this round.
    round: usize,
    /// By model, how many of them are in the stream up to there.
    offered: Vec<u32>,
    contestants: Vec<Contestant>,
    /// Whose turn it is.
    turn: usize,
    /// The variant in use.
    chosen: usize,
}

#[derive(Clone, Debug)]
struct Contestant {
    /// Its number among the variants.
    variant: usize,
    /// Made when its first turn comes: copies take a while.
    shadow: Option<Shadow>,
    played: usize,
}

/// What a contestant has lost.
#[derive(Clone, Copy, Debug)]
struct Losses {
    /// The share of the model that loses most, and a little of all others.
    score: f64,
    /// The highest share of any model.
    worst: f64,
    /// How many requests that model lost.
    count: f64,
}

impl Contest {
    /// All variants as they would go on from now, of which `chosen` is in use.
    pub(super) fn new(
        now: Time,
        live: &Dispatcher,
        variants: [Variant; VARIANTS],
        chosen: usize,
        arrivals: &Arrivals,
    ) -> Self {
        let most = (TIMES_KNOWN * arrivals.known()).clamp(FIRST_ROUND, STREAM_MAX);
        let mut stream = arrivals.stream(arrivals.count(), now, most);
        stream.retain(|arrival| live.serves(arrival.model));
        let contestant = |variant| Contestant { variant, shadow: None, played: 0 };
        let mut contest = Self {
            start: live.clone(),
            from: now,
            variants,
            stream,
            round: 0,
            offered: vec![0; live.models()],
            contestants: (0..VARIANTS).map(contestant).collect(),
            turn: 0,
            chosen,
        };
        contest.begin_round(FIRST_ROUND);
        contest
    }

    fn begin_round(&mut self, requests: usize) {
        let until = requests.min(self.stream.len());
        for arrival in &self.stream[self.round..until] {
            self.offered[arrival.model.index()] += 1;
        }
        (self.round, self.turn) = (until, 0);
    }

    /// Plays so many requests. The number of the winner, once there is one.
    pub(super) fn go_on(&mut self, mut requests: usize, findings: &mut Findings) -> Option<usize> {
        loop {
            while let Some(contestant) = self.contestants.get_mut(self.turn) {
                let until = self.round.min(contestant.played + requests);
                requests -= until - contestant.played;
                let rules = &self.variants[contestant.variant];
                let shadow = contestant
                    .shadow
                    .get_or_insert_with(|| Shadow::new(&self.start, self.from, rules));
                self.stream[contestant.played..until].iter().for_each(|next| shadow.play(next));
                contestant.played = until;
                if until < self.round {
                    return None;
                }
                self.turn += 1;
            }
            let is_last = self.round == self.stream.len();
            if let Some(winner) = self.end_round(is_last, findings) {
                return Some(winner);
            }
            self.begin_round(2 * self.round);
        }
    }

    /// Half of the contestants leave. The winner, if there is one.
    fn end_round(&mut self, is_last: bool, findings: &mut Findings) -> Option<usize> {
        let all: Vec<Losses> = self.contestants.iter().map(|each| self.losses(each)).collect();
        let best = all.iter().min_by(|a, b| a.score.total_cmp(&b.score)).copied()?;
        let is_calm = |contestant: &Contestant, losses: &Losses| {
            contestant.variant == DEFAULT && losses.worst <= CALM
        };
        let mut is_default_calm = false;
        let mut judged = Vec::with_capacity(all.len());
        for (contestant, losses) in std::mem::take(&mut self.contestants).into_iter().zip(&all) {
            is_default_calm |= is_calm(&contestant, losses);
            // Both counts are uncertain; so is their ratio.
            let (own, other) = (losses.count + 1.0, best.count + 1.0);
            let weight = 1.0 + own * other / (own + other);
            let excess = (losses.score / best.score).ln();
            let at = contestant.variant;
            let advantage = if at == self.chosen { 0.0 } else { -ADVANTAGE.ln() };
            let found = findings.with(at, excess, weight);
            judged.push((found + advantage, (excess, weight), contestant));
        }
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let keep = judged.len().div_ceil(2);
        let is_over = is_last || keep == 1;
        let winner = judged.first().map(|(_, _, contestant)| contestant.variant);
        for (place, (_, (excess, weight), contestant)) in judged.into_iter().enumerate() {
            if is_over || place >= keep {
                findings.add(contestant.variant, excess, weight);
            }
            if place < keep || contestant.variant == DEFAULT {
                self.contestants.push(contestant);
            }
        }
        is_over.then_some(if is_default_calm { Some(DEFAULT) } else { winner }).flatten()
    }

    fn losses(&self, contestant: &Contestant) -> Losses {
        let mut losses = Losses { score: 0.0, worst: 0.0, count: 0.0 };
        let (mut highest, mut sum) = (0.0_f64, 0.0);
        let lost = contestant.shadow.as_ref().map_or(&[][..], Shadow::lost);
        for (&lost, &offered) in lost.iter().zip(&self.offered) {
            let (lost, offered) = (f64::from(lost), f64::from(offered));
            let share = (lost + PRIOR_LOST) / (offered + PRIOR_OFFERED);
            losses.worst = losses.worst.max(lost / offered.max(1.0));
            sum += share;
            if share > highest {
                (highest, losses.count) = (share, lost);
            }
        }
        losses.score = highest + OTHERS_WEIGHT * sum;
        losses
    }
}

impl Findings {
    /// Another contest begins.
    pub(super) fn fade(&mut self) {
        self.sums.iter_mut().chain(&mut self.weights).for_each(|value| *value *= MEMORY);
    }

    /// What is found of a variant, with something new.
    fn with(&self, variant: usize, excess: f64, weight: f64) -> f64 {
        (self.sums[variant] + weight * excess) / (self.weights[variant] + weight)
    }

    fn add(&mut self, variant: usize, excess: f64, weight: f64) {
        self.sums[variant] += weight * excess;
        self.weights[variant] += weight;
    }
}
