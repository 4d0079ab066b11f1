//! A contest between variants: all of them are played the same requests, and those that lose most
//! leave, until one is left. `docs/policy.md` has the reasons.

use fermata_core::Time;

use super::arrivals::{Arrival, Arrivals, KEPT};
use super::shadow::Shadow;
use super::variants::{DEFAULT, VARIANTS};
use crate::dispatcher::Dispatcher;
use crate::tuning::Learned;
use crate::variant::Variant;

/// If fewer requests are remembered than this many, and this many times as many as come within the
/// longest objective, pieces of them are played until there are as many,
const LEAST: usize = 8_192;
const OBJECTIVES: usize = 24;
/// but none more often than this, and no more than this in all.
const TIMES: usize = 16;
const MOST: usize = KEPT;
/// A longer memory is played only as far as those two ask for it; otherwise its last requests, this
/// many.
const USUAL: usize = 32_768;
/// A piece has this many requests, times the variation of arrivals: long gaps are cut by short
/// pieces.
const PIECE: f64 = 64.0;
/// After an eighth of them half of the variants leave, but not before as many as come within this
/// many times the longest objective; the others go on to twice as many, and so on.
const FIRST_ROUND: usize = 8;
const FIRST_OBJECTIVES: usize = 4;
/// To what a model lost these are added, so that few requests do not tell much: lost ones, and all.
const PRIOR_LOST: f64 = 2.0;
const PRIOR_OFFERED: f64 = 200.0;
/// The losses of all models count for this much beside those of the model that loses most.
const OTHERS_WEIGHT: f64 = 0.05;
/// With every contest, what earlier ones found counts for this much less.
const MEMORY: f64 = 0.7;
/// Where models lose so much on average, capacity is what is missing: from the first share on the
/// mean over models begins to count in place of the model that loses most, from the second one on
/// it counts alone.
const OVERLOAD: (f64, f64) = (0.05, 0.10);
/// Another variant must lose so much less than the one in use.
const ADVANTAGE: f64 = 0.9;
/// The default rules are used where no model loses a larger share under them.
const CALM: f64 = 0.004;

/// What contests found of each variant.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    each: [Tally; VARIANTS],
    /// What models learned of their losses under each variant.
    learned: [Vec<Learned>; VARIANTS],
}

/// By model, what a variant lost, what the default rules lost of the same requests, and how many
/// there were.
#[derive(Clone, Debug, Default)]
struct Tally {
    lost: Vec<f64>,
    by_default: Vec<f64>,
    offered: Vec<f64>,
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
    /// How many of the first ones do not count.
    warm_up: usize,
    /// By model, how many that count are in the stream up to the end of this round.
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

impl Contest {
    /// All variants as they would go on from now, of which `chosen` is in use. So many requests as
    /// come `within_longest`, the longest objective, are played before losses count: until then
    /// they are those of the rules before.
    pub(super) fn new(
        now: Time,
        live: &Dispatcher,
        variants: [Variant; VARIANTS],
        chosen: usize,
        arrivals: &Arrivals,
        (gap, variation): (f64, f64),
        within_longest: usize,
    ) -> Self {
        let least = LEAST.max(OBJECTIVES * within_longest);
        let least = least.min(TIMES * arrivals.known()).min(MOST);
        let piece = (PIECE * variation) as usize;
        let most = least.max(USUAL);
        let mut stream = arrivals.again(arrivals.count(), now, (least, most), piece, gap);
        stream.retain(|arrival| live.serves(arrival.model));
        let first = stream.len().div_ceil(FIRST_ROUND).max(FIRST_OBJECTIVES * within_longest);
        let contestant = |variant| Contestant { variant, shadow: None, played: 0 };
        let mut contest = Self {
            start: live.clone(),
            from: now,
            variants,
            stream,
            round: 0,
            warm_up: within_longest.min(first / 2),
            offered: vec![0; live.models()],
            contestants: (0..VARIANTS).map(contestant).collect(),
            turn: 0,
            chosen,
        };
        contest.begin_round(first);
        contest
    }

    fn begin_round(&mut self, requests: usize) {
        let until = requests.min(self.stream.len());
        for arrival in &self.stream[self.round.max(self.warm_up).min(until)..until] {
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
                let at = contestant.variant;
                let shadow = contestant.shadow.get_or_insert_with(|| {
                    // The rules in use go on with what they know.
                    let learned = if at == self.chosen { &[][..] } else { findings.learned(at) };
                    Shadow::new(&self.start, self.from, &self.variants[at], learned, self.warm_up)
                });
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
        let is_default = |contestant: &&Contestant| contestant.variant == DEFAULT;
        let default = self.contestants.iter().find(is_default)?.lost().to_vec();
        let mut judged = Vec::with_capacity(self.contestants.len());
        for contestant in std::mem::take(&mut self.contestants) {
            let variant = contestant.variant;
            let mut tally = findings.each[variant].clone();
            tally.add(contestant.lost(), &default, &self.offered);
            let advantage = if variant == self.chosen { ADVANTAGE } else { 1.0 };
            judged.push((advantage * tally.excess(), tally, contestant));
        }
        judged.sort_by(|a, b| a.0.total_cmp(&b.0));
        let keep = judged.len().div_ceil(2);
        let is_over = is_last || keep == 1;
        let mut winner = judged.first()?.2.variant;
        for (place, (_, tally, contestant)) in judged.into_iter().enumerate() {
            let variant = contestant.variant;
            if is_over && variant == DEFAULT && tally.is_calm() {
                winner = DEFAULT;
            }
            if is_over || (place >= keep && variant != DEFAULT) {
                findings.each[variant] = tally;
                if let Some(shadow) = &contestant.shadow {
                    findings.learned[variant] = shadow.learned();
                }
            } else {
                self.contestants.push(contestant);
            }
        }
        is_over.then_some(winner)
    }
}

impl Contestant {
    fn lost(&self) -> &[u32] {
        self.shadow.as_ref().map_or(&[], Shadow::lost)
    }
}

impl Findings {
    /// Another contest begins.
    pub(super) fn fade(&mut self) {
        let all = self.each.iter_mut();
        all.flat_map(Tally::all).flatten().for_each(|value| *value *= MEMORY);
    }

    /// The share of all requests that the default rules lost where this variant was played.
    pub(super) fn lost_by_default(&self, variant: usize) -> f64 {
        let Tally { by_default, offered, .. } = &self.each[variant];
        by_default.iter().sum::<f64>() / offered.iter().sum::<f64>().max(1.0)
    }

    /// In use, a variant lost more than the default rules lost in contests.
    pub(super) fn disprove(&mut self, variant: usize) {
        let Tally { lost, by_default, .. } = &mut self.each[variant];
        lost.iter_mut().zip(by_default).for_each(|(lost, by_default)| *lost = 2.0 * *by_default);
    }

    /// What models learned of their losses under a variant; nothing, if it has not been played.
    pub(super) fn learned(&self, variant: usize) -> &[Learned] {
        &self.learned[variant]
    }
}

impl Tally {
    fn all(&mut self) -> [&mut Vec<f64>; 3] {
        [&mut self.lost, &mut self.by_default, &mut self.offered]
    }

    fn add(&mut self, lost: &[u32], by_default: &[u32], offered: &[u32]) {
        for (sums, counts) in self.all().into_iter().zip([lost, by_default, offered]) {
            sums.resize(counts.len(), 0.0);
            sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += f64::from(count));
        }
    }

    /// How much of what the default rules lost is lost.
    fn excess(&self) -> f64 {
        self.score(&self.lost) / self.score(&self.by_default)
    }

    /// The share of the model that loses most, and a little of all others; in overload, their mean.
    fn score(&self, lost: &[f64]) -> f64 {
        let (mut highest, mut sum) = (0.0_f64, 0.0);
        for (lost, offered) in lost.iter().zip(&self.offered) {
            let share = (lost + PRIOR_LOST) / (offered + PRIOR_OFFERED);
            sum += share;
            highest = highest.max(share);
        }
        let mean = sum / self.offered.len().max(1) as f64;
        let (begin, end) = OVERLOAD;
        let overload = ((mean - begin) / (end - begin)).clamp(0.0, 1.0);
        highest + overload * (mean - highest) + OTHERS_WEIGHT * sum
    }

    /// Whether no model lost anything worth mentioning under the default rules.
    fn is_calm(&self) -> bool {
        let mut models = self.by_default.iter().zip(&self.offered);
        models.all(|(&lost, &offered)| lost <= CALM * offered)
    }
}
