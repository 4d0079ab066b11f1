//! The default policy: a dispatcher whose rules are compared with others while it loses requests.
//!
//! The dispatcher is a plain value, so it can be copied, and the copies can be played the requests
//! that came lately. Where a pool loses requests, copies under other rules are played the same
//! requests, and the rules that lose least are used. While nothing is lost, this costs the note of
//! each request.

mod arrivals;
mod contest;
mod shadow;
mod variants;

use fermata_core::{Span, Time};

use self::arrivals::{Arrival, Arrivals, KEPT};
use self::contest::{Contest, Findings};
use self::variants::{DEFAULT, VARIANTS, variants};
use crate::dispatcher::Dispatcher;
use crate::event::{Action, Actions, Dispatch, Event, Network};
use crate::rules::{Rules, Spare};
use crate::variant::Variant;

/// A contest begins when so many requests have come since the last one; with each contest twice as
/// many.
const GAP_MIN: u64 = 256;
const GAP_MAX: u64 = 1 << 18;
/// After a contest the next one waits for this many times as long as it took.
const REST: u64 = 4;
/// While other rules than the default are used, the next contest begins when this time has passed
/// and this many requests have come.
const REVIEW: (Span, u64) = (Span(30_000_000_000), 32_768);
/// No contest begins before requests have come for this many times the longest objective, or half
/// of all that can be remembered have come.
const ENOUGH: u64 = 4;
/// The pattern of arrivals is looked at after every so many requests.
const LOOK: usize = 512;
/// Of more requests than these a part tells which models they are for.
const SAMPLES: usize = 4_096;
/// It is another one, if the mean gap between requests is so many times as long or short,
const OTHER_GAP: f64 = 1.6;
/// or if this share of the requests is for other models than before, counted twice.
const OTHER_SHARES: f64 = 0.5;
/// A silence is seen sooner: this many requests, times the variation of their arrivals, take this
/// many times as long.
const SILENCES: [(usize, f64); 2] = [(8, 4.5), (32, 2.5)];
/// A share of requests lost that is reason for another contest.
const TROUBLE: f64 = 0.005;
/// A variant in use is left at once if it loses more than the default rules lost in its contests.
/// That is judged after this number of requests, times the variation of their arrivals,
const PROVED: f64 = 4_096.0;
/// and it is tolerated to lose this share in any case.
const TOLERATED: f64 = 0.01;
/// The mean gap between requests is that of this many of them, at most, and of this time. A contest
/// begins when more come than usual, so the mean gap of the requests that are remembered would be
/// too short.
const RATE_REQUESTS: u64 = 1 << 17;
const RATE_TIME: Span = Span(60_000_000_000);
/// To play a request to a copy takes about this long.
const PLAY: Span = Span(1_000);
/// A contest takes this part of a processor's time,
const TIME_SHARE: u64 = 2;
/// and after it has begun no event waits for it longer than this.
const DELAY_MAX: Span = Span(100_000);

/// A dispatcher and what is known of its arrivals.
#[derive(Clone, Debug)]
pub struct Adaptive {
    live: Dispatcher,
    arrivals: Arrivals,
    /// Whether there is more to do after an event than to note it.
    is_alert: bool,
    spare: Spare,
    /// As of the last contest.
    variants: [Variant; VARIANTS],
    /// The variant in use.
    chosen: usize,
    contest: Option<Box<Contest>>,
    findings: Findings,
    /// The number of requests at which the next contest may begin, and from then to the one after
    /// it.
    next: u64,
    gap: u64,
    /// When the last contest began, and until when there is none after it.
    began: Time,
    rested: Time,
    /// The number of requests at which the pattern is looked at next.
    look: u64,
    /// How many requests were lost since the last look.
    lost: u64,
    /// Whether too many were lost then.
    is_troubled: bool,
    /// The number of requests when the variant in use was chosen, and how many were lost since.
    in_use: (u64, u64),
    pattern: Pattern,
    /// Since then, and since so many requests had come, they have come as they do now.
    since: (Time, u64),
    /// When the last event was, and what may be used of the time since then.
    last: Time,
    credit: Span,
}

/// How requests come.
#[derive(Clone, Debug, Default)]
struct Pattern {
    /// The mean gap, in nanoseconds.
    gap: f64,
    /// How much more the time varies in which a few come than if they came at random; at least one.
    variation: f64,
    /// By model, its share of the requests.
    shares: Vec<f64>,
}

impl Adaptive {
    /// A pool without executors and models.
    pub fn new(spare: Spare, network: Network) -> Self {
        Self {
            live: Dispatcher::new(Rules::priced(spare), network),
            arrivals: Arrivals::default(),
            is_alert: false,
            spare,
            variants: variants(spare, Span::MAX),
            chosen: DEFAULT,
            contest: None,
            findings: Findings::default(),
            next: GAP_MIN,
            gap: GAP_MIN,
            began: Time::START,
            rested: Time::START,
            look: 0,
            lost: 0,
            is_troubled: false,
            in_use: (0, 0),
            pattern: Pattern::default(),
            since: (Time::START, 0),
            last: Time::START,
            credit: Span::ZERO,
        }
    }

    /// After an event, while requests are lost or other rules than the default are used.
    #[cold]
    fn attend(&mut self, now: Time, actions: &[Action]) {
        let is_drop = |action: &&Action| matches!(action, Action::Drop { .. });
        self.lost += actions.iter().filter(is_drop).count() as u64;
        self.credit = (self.credit + Span((now - self.last).0 / TIME_SHARE)).min(DELAY_MAX);
        self.last = now;
        self.look_at_pattern(now);
        if let Some(contest) = &mut self.contest {
            let requests = (self.credit.0 / PLAY.0) as usize;
            self.credit = Span(self.credit.0 % PLAY.0);
            if let Some(winner) = contest.go_on(requests, &mut self.findings) {
                self.contest = None;
                self.rested = now + (now - self.began) * REST;
                self.choose(now, winner);
            }
            return;
        }
        let is_other = self.chosen != DEFAULT;
        let review = (self.next - self.gap + REVIEW.1, self.began + REVIEW.0);
        let count = self.arrivals.count();
        let is_due = count >= self.next || is_other && count >= review.0 && now >= review.1;
        if is_due && now >= self.rested {
            let is_troubled = self.live.take_trouble() || self.is_troubled;
            if (is_troubled || is_other) && self.live.may_be_contested() {
                self.begin_contest(now);
            }
        }
        self.is_alert = self.contest.is_some() || self.chosen != DEFAULT;
    }

    fn begin_contest(&mut self, now: Time) {
        if !self.knows_enough() {
            self.next = self.arrivals.count() + (self.arrivals.known() as u64 / 4).max(GAP_MIN);
            return;
        }
        self.began = now;
        self.gap = (2 * self.gap).min(GAP_MAX);
        self.next = self.arrivals.count() + self.gap;
        self.is_troubled = false;
        self.forget_other_patterns();
        self.pattern = self.seen(0, self.arrivals.known());
        self.pattern.variation = self.arrivals.variation().max(1.0);
        self.findings.fade();
        let (tightest, longest) = self.live.objectives(&self.pattern.shares);
        self.variants = variants(self.spare, tightest);
        let gap = self.mean_gap(now);
        let within_longest = (longest.0 as f64 / gap.max(1.0)) as usize;
        let (live, arrivals) = (&self.live, &self.arrivals);
        let contest = Contest::new(
            now,
            live,
            self.variants,
            self.chosen,
            arrivals,
            (gap, self.pattern.variation),
            within_longest,
        );
        self.contest = Some(Box::new(contest));
    }

    /// Whether the requests that are remembered took long enough to tell what rules do to them.
    fn knows_enough(&self) -> bool {
        let known = self.arrivals.known();
        let (_, longest) = self.live.objectives(&self.seen(0, LOOK).shares);
        let took = self.arrivals.duration_of(0, known.saturating_sub(1)).unwrap_or_default();
        took >= longest * ENOUGH || known >= KEPT / 2
    }

    /// The mean gap between requests while they have come as they do now, in nanoseconds.
    fn mean_gap(&mut self, now: Time) -> f64 {
        let (requests, time) = (self.arrivals.count() - self.since.1, now - self.since.0);
        if requests <= self.arrivals.known() as u64 {
            return self.pattern.gap;
        }
        if requests > RATE_REQUESTS || time > RATE_TIME {
            // The same mean, of half the weight.
            self.since = (self.since.0 + Span(time.0 / 2), self.since.1 + requests / 2);
        }
        time.0 as f64 / requests as f64
    }

    fn choose(&mut self, now: Time, variant: usize) {
        if variant != self.chosen {
            self.chosen = variant;
            self.in_use = (self.arrivals.count(), 0);
            self.live.adopt(now, &self.variants[variant], self.findings.learned(variant));
        }
    }

    /// Whether requests come in another way than when the variants were compared.
    fn look_at_pattern(&mut self, now: Time) {
        if self.chosen == DEFAULT && self.gap == GAP_MIN {
            return;
        }
        let is_silent = |&(requests, times): &(usize, f64)| {
            let requests = requests as f64 * self.pattern.variation;
            let took = self.arrivals.duration_of(0, requests as usize);
            took.is_some_and(|took| took.0 as f64 > self.pattern.gap * requests * times)
        };
        if SILENCES.iter().any(is_silent) {
            self.forget(now);
        } else if self.arrivals.count() >= self.look {
            self.is_troubled = self.lost as f64 > TROUBLE * LOOK as f64;
            self.in_use.1 += std::mem::take(&mut self.lost);
            self.look = self.arrivals.count() + LOOK as u64;
            if self.arrivals.known() > LOOK && self.seen(0, LOOK).is_other_than(&self.pattern) {
                self.forget(now);
            } else if self.contest.is_none() && self.is_disproved() {
                self.findings.disprove(self.chosen);
                self.rested = now;
                self.choose(now, DEFAULT);
            }
        }
    }

    /// Whether the variant in use loses more than it was chosen for.
    fn is_disproved(&self) -> bool {
        let (since, lost) = self.in_use;
        let requests = (self.arrivals.count() - since) as f64;
        let most = self.findings.lost_by_default(self.chosen).max(TOLERATED);
        self.chosen != DEFAULT
            && requests >= PROVED * self.pattern.variation
            && lost as f64 > most * requests
    }

    /// What was found does not hold any more.
    fn forget(&mut self, now: Time) {
        self.arrivals.forget_before(LOOK);
        self.contest = None;
        self.findings = Findings::default();
        self.since = (now, self.arrivals.count());
        self.gap = GAP_MIN;
        self.next = self.arrivals.count() + GAP_MIN;
        self.rested = now;
        self.choose(now, DEFAULT);
    }

    /// Remembers only the requests that came as the last ones did: back to the first stretch of
    /// another pattern, each stretch as long as all after it.
    fn forget_other_patterns(&mut self) {
        let (last, known) = (self.seen(0, LOOK), self.arrivals.known());
        let mut alike = LOOK;
        while alike < known {
            if self.seen(alike, alike).is_other_than(&last) {
                self.arrivals.forget_before(alike);
                self.since = (self.arrivals.first_at(), self.arrivals.count() - alike as u64);
                return;
            }
            alike *= 2;
        }
    }

    /// The pattern of this many requests, without the last `skipped`.
    fn seen(&self, skipped: usize, requests: usize) -> Pattern {
        let requests = requests.min(self.arrivals.known().saturating_sub(skipped + 1));
        let duration = self.arrivals.duration_of(skipped, requests).unwrap_or_default();
        let mut shares = vec![0.0; self.live.models()];
        let step = requests.div_ceil(SAMPLES).max(1);
        let sampled = requests.div_ceil(step) as f64;
        for arrival in self.arrivals.last(skipped, requests).step_by(step) {
            if let Some(share) = shares.get_mut(arrival.model.index()) {
                *share += 1.0 / sampled;
            }
        }
        let gap = duration.0 as f64 / requests.max(1) as f64;
        Pattern { gap, variation: 1.0, shares }
    }
}

impl Pattern {
    fn is_other_than(&self, other: &Self) -> bool {
        let ratio = self.gap / other.gap;
        let shares = self.shares.iter().zip(&other.shares);
        let moved: f64 = shares.map(|(share, before)| (share - before).abs()).sum();
        !(1.0 / OTHER_GAP..=OTHER_GAP).contains(&ratio) || moved > OTHER_SHARES
    }
}

impl Dispatch for Adaptive {
    // As for the dispatcher itself: of an event that is made where it is handled, only its own arm
    // is left.
    #[inline(always)]
    fn handle(&mut self, now: Time, event: Event, actions: &mut Actions) {
        let first = actions.list.len();
        let is_other_pool = match event {
            Event::Arrive { model, deadline, kind, .. } => {
                self.arrivals.note(Arrival { at: now, slack: deadline - now, model, kind });
                false
            }
            Event::Done { .. } | Event::Wakeup => false,
            Event::Cancel { .. } | Event::Late { .. } | Event::Profile { .. } => false,
            Event::AddModel { .. } | Event::RemoveModel { .. } => true,
            Event::Fail { .. } | Event::Join { .. } | Event::Leave { .. } => true,
        };
        self.live.handle(now, event, actions);
        if is_other_pool {
            self.arrivals.forget_before(0);
            self.forget(now);
        }
        if self.is_alert || self.live.is_in_trouble() {
            self.attend(now, &actions.list[first..]);
            if self.live.next_wakeup() <= now {
                // Under other rules candidates are others, and some are ready at once.
                self.live.handle(now, Event::Wakeup, actions);
            }
        }
    }

    #[inline]
    fn next_wakeup(&self) -> Time {
        self.live.next_wakeup()
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::{KindId, ModelId, Profile, RequestId};

    use super::*;
    use crate::event::ModelSpec;

    /// Two models, and a request for each of `models` a millisecond after the one before.
    fn after(models: impl Iterator<Item = u32>) -> Adaptive {
        let (mut pool, mut actions) =
            (Adaptive::new(Spare::Latency, Network::default()), Actions::default());
        let slo = Span::from_ms(10.0);
        let profile = Profile::linear(Span::from_ms(1.0), Span::from_ms(1.0), slo).unwrap();
        for model in [0, 1].map(ModelId) {
            let spec = ModelSpec::uniform(slo, profile.clone()).into();
            pool.handle(Time::START, Event::AddModel { model, spec, gap: None }, &mut actions);
        }
        for (number, model) in (1..).zip(models) {
            let (now, model) = (Time::from_ms(number as f64), ModelId(model));
            let request = RequestId(number);
            let event = Event::Arrive { model, request, deadline: now + slo, kind: KindId(0) };
            pool.handle(now, event, &mut actions);
            actions.clear();
        }
        pool
    }

    #[test]
    fn requests_of_another_pattern_are_forgotten_and_of_the_same_one_are_not() {
        let mut steady = after((0..6_000).map(|number| number % 2));
        steady.forget_other_patterns();
        assert_eq!(steady.arrivals.known(), 6_000);
        // One model alone for 4,000 requests, then both of them for 3,000.
        let mut changed =
            after((0..7_000).map(|number| u32::from(number >= 4_000 && number % 2 == 1)));
        changed.forget_other_patterns();
        assert_eq!(changed.arrivals.known(), 2_048);
        assert_eq!(changed.since, (Time::from_ms(4_953.0), 4_952));
        assert!((changed.seen(0, 2_048).shares[0] - 0.5).abs() < 0.01);
    }
}
