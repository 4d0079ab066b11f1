//! What a model derives for itself from its arrivals, its profile and the market: how long to hold,
//! when to give up urgent requests, how urgent to be. `docs/policy.md` derives the rules.

use fermata_core::{Profile, Span, Table, Time};

use crate::arrival_stats::ArrivalStats;
use crate::blocking::Need;
use crate::price::{Report, Signal};
use crate::rules::Spare;

/// The cost per request may exceed the gathered batch's by at least this share, and at most by
/// `TOLERANCE_MAX`, before urgent requests are given up for a larger batch. Between them decides
/// how much slack the pool has.
const TOLERANCE_MIN: f64 = 0.04;
const TOLERANCE_MAX: f64 = 0.2;
/// The most where nothing else runs between two batches of the model, on any executor.
const TOLERANCE_LONE: f64 = 0.075;
/// The least tolerance is gone when the load exceeds the pool by this share: then only throughput
/// counts.
const OVERLOAD: f64 = 0.2;
/// The capacity, in requests, that may be wasted to save one request: less than one, since it is
/// missing for everybody who waits behind.
const WASTE_FOR_ONE: f64 = 0.5;
/// Holding is for companions: with less than this many expected before the latest moment, none are
/// waited for.
const COMPANIONS_MIN: f64 = 0.5;
/// When the gap since the last arrival is this many times the mean, something has ended: by chance
/// that happens once in four hundred times.
const UNLIKELY: f64 = 6.0;
/// The share of lost requests remembers about the last five hundred.
const BAD_WEIGHT: f64 = 0.002;
/// How much of its SLO a model moves ahead of others if as many requests are lost, above the
/// average, as come within its SLO. So it takes the same time to get ahead, however many come.
const ADVANCE_SHARE: f64 = 0.2;
/// The least and the most for each lost request.
const ADVANCE_MIN: f64 = 0.001;
const ADVANCE_MAX: f64 = 0.024;
/// Models no longer move ahead of each other when this share of all requests is lost.
const FAIR_UNTIL: f64 = 0.05;

/// Where spare executors buy latency, a batch is held while the executor time that the next request
/// saves is worth more than this many times the time that those in the batch wait for it.
const WORTH: f64 = 0.3;
/// It is not held for more than this many mean gaps: with every gap in which nobody comes, the rate
/// is more doubtful.
const GAPS_MAX: f64 = 2.0;
/// The worth of executor time rises with this power of the load, without bound where the pool is
/// full.
const FULL_POWER: f64 = 2.5;
/// And with the share of requests that are lost: it is without bound where this share is.
const LOST_MAX: f64 = 0.002;
/// Its bound, for the arithmetic: fifty times what it is worth in an idle pool.
const ROOM_MIN: f64 = 0.02;

/// Of the requests that come while a batch of others runs this share may come too early to bear its
/// length: an objective is that of 99 % of the requests.
const LOST_MOST: f64 = 0.01;

/// What a model learned of its losses under some rules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Learned {
    ahead: f64,
    bad: f64,
}

/// What a model has derived for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tuning {
    report: Report,
    /// How long after an arrival to hold for the next one.
    patience: Span,
    /// What spare executors are for.
    spare: Spare,
    /// How long where spare executors buy latency, and the largest product of idle executors and
    /// squared batch size for which it is held at all.
    patience_spare: Span,
    holds_below: f64,
    need: Need,
    /// The share of its SLO that the model is ahead of others.
    ahead: f64,
    /// The same as a time: it comes off the end of holding, and off the urgency.
    advance: Span,
}

impl Tuning {
    /// What the market should know.
    #[inline]
    pub(crate) fn report(&self) -> Report {
        self.report
    }

    /// Derives load and patience anew, at the `batch` of a staggered execution. A lone request can
    /// wait for `slack`; nobody joins it later than `overlap` after the last.
    pub(crate) fn retune(
        &mut self,
        arrivals: &ArrivalStats,
        overlap: Span,
        profile: &Profile,
        batch: f64,
        slack: Span,
        signal: &Signal,
    ) {
        self.spare = Spare::Release;
        let (cost, marginal) = costs(profile, batch);
        let saving = (cost - marginal).max(0.0);
        let load = arrivals.rate() * cost;
        self.report.load = load;
        self.report.alone = arrivals.rate() * profile.shortest().0 as f64;
        self.report.gain = load * arrivals.rate() * saving;
        // How long batches run varies too, where that depends on the input: then an idle moment is
        // missed as after a burst.
        let run = profile.spread().map_or(0.0, |spread| spread.variation());
        self.report.variation = load * (arrivals.variation() / batch + run);
        let companions = arrivals.rate() * slack.0 as f64;
        self.patience = if companions < COMPANIONS_MIN || signal.idle {
            Span::ZERO
        } else if signal.hold {
            // The whole pool holds: a model for which it does not pay would only take the executors
            // that the others count on.
            overlap.min(Span((UNLIKELY / arrivals.rate()) as u64))
        } else {
            arrivals.patience(saving, signal.price).min(overlap)
        };
    }

    /// Derives how long batches are held where spare executors buy latency, at the `batch` of a
    /// staggered execution.
    pub(crate) fn set_worth(
        &mut self,
        arrivals: &ArrivalStats,
        overlap: Span,
        profile: &Profile,
        batch: f64,
        signal: &Signal,
    ) {
        (self.spare, self.holds_below) = (Spare::Latency, 0.0);
        if signal.hold && !signal.idle && arrivals.rate() > 0.0 {
            let (cost, marginal) = costs(profile, batch);
            let room = (1.0 - signal.load.powf(FULL_POWER)) * (1.0 - signal.bad / LOST_MAX);
            let room = room.max(ROOM_MIN);
            // The requests of a batch share what it costs however small it is.
            let worth = WORTH * arrivals.rate() * (cost - marginal).max(0.0) * batch / room;
            self.holds_below = worth * worth;
            self.patience_spare = overlap.min(Span((GAPS_MAX / room / arrivals.rate()) as u64));
        }
    }

    /// Derives what others must know that may block the model, whose batches are of `batch` at its
    /// present rate, and have `budget` from the arrival of their first request to their end.
    pub(crate) fn set_need(
        &mut self,
        arrivals: &ArrivalStats,
        reach: &Table,
        batch: f64,
        budget: Span,
    ) {
        let below = (batch as usize).clamp(1, reach.max_batch());
        let above = (below + 1).min(reach.max_batch());
        let (short, long) = (reach.latency(below), reach.latency(above));
        let takes = short + Span(((long - short).0 as f64 * (batch - below as f64)) as u64);
        let slack = budget - takes;
        let bears = slack + Span((slack.0 as f64 * LOST_MOST) as u64);
        self.need = Need { bears, takes, batch, rate: arrivals.rate() };
    }

    /// What others must know that may block the model.
    pub(crate) fn need(&self) -> Need {
        self.need
    }

    /// From when on a candidate of `size` may start, whose window is from `frontrun` to `latest`:
    /// at frontrun, a turn before its latest moment, or when nobody is expected to join any more;
    /// where spare executors buy latency, also when the next request would save less than those in
    /// the batch wait for.
    #[inline]
    pub(crate) fn ready(
        &self,
        size: usize,
        (frontrun, latest): (Time, Time),
        arrivals: &ArrivalStats,
        signal: &Signal,
    ) -> Time {
        let end = frontrun.min(latest - signal.turn - self.advance) - signal.slack;
        let patience = match self.spare {
            Spare::Release => self.patience,
            Spare::Latency => {
                let idle = f64::from(signal.idle_executors.max(1));
                let is_held = (size * size) as f64 * idle < self.holds_below;
                if is_held { self.patience_spare } else { Span::ZERO }
            }
        };
        end.min(arrivals.last() + patience)
    }

    /// How urgent a candidate is that can start until `latest`.
    #[inline]
    pub(crate) fn urgency(&self, latest: Time) -> Time {
        latest - self.advance
    }

    /// What was learned of losses.
    pub(crate) fn learned(&self) -> Learned {
        Learned { ahead: self.ahead, bad: self.report.bad }
    }

    /// Goes on with what was learned of losses before.
    pub(crate) fn recall(&mut self, learned: Learned, slo: Span) {
        self.report.bad = learned.bad;
        self.set_ahead(learned.ahead, slo);
    }

    fn set_ahead(&mut self, ahead: f64, slo: Span) {
        self.ahead = ahead;
        self.advance = Span((ahead * slo.0 as f64) as u64);
    }

    /// This many requests were sent off in time, and this many lost.
    pub(crate) fn note(&mut self, sent: usize, lost: usize, slo: Span, rate: f64, signal: &Signal) {
        let (sent, lost) = (sent as f64, lost as f64);
        let all = sent + lost;
        self.report.bad += (lost / all - self.report.bad) * (BAD_WEIGHT * all).min(1.0);
        // There is nothing to be ahead of where all that is lost is its own.
        let fair = if signal.alone { 0.0 } else { (1.0 - signal.bad / FAIR_UNTIL).max(0.0) };
        let within_slo = rate * slo.0 as f64;
        let step = (ADVANCE_SHARE / within_slo).clamp(ADVANCE_MIN, ADVANCE_MAX);
        let ahead = self.ahead + step * (lost - signal.bad * all);
        self.set_ahead(ahead.clamp(0.0, fair), slo);
    }

    /// How many urgent requests to give up, and how many to send. `fits_after(skip, later)` says
    /// how many can be sent so much later without the first `skip` of `waiting`; `target` is the
    /// batch of a staggered execution.
    pub(crate) fn gather(
        &self,
        waiting: usize,
        target: usize,
        profile: &Profile,
        signal: &Signal,
        fits_after: impl Fn(usize, Span) -> usize,
    ) -> (usize, usize) {
        let fits = |skip: usize| fits_after(skip, Span::ZERO);
        // Fewer are left with every one given up, and more of those left fit: the largest batch is
        // where the two meet.
        let meeting = first_where(0, waiting, |skip| fits(skip) >= waiting - skip);
        let before = if meeting > 0 { fits(meeting - 1) } else { 0 };
        let gathered = before.max(waiting - meeting);
        if gathered == 0 {
            return (0, 0);
        }
        let least = TOLERANCE_MIN * (1.0 - (signal.load - 1.0) / OVERLOAD).clamp(0.0, 1.0);
        // Those left behind by a lone executor's batch go with its next one, and a small batch now
        // makes that one late: the batch of a staggered execution is not enough then.
        let (most, target) = match signal.executors {
            1 if signal.alone => (TOLERANCE_LONE, gathered),
            1 => (TOLERANCE_MAX, gathered),
            _ => (TOLERANCE_MAX, target),
        };
        let tolerance = (1.0 / signal.load - 1.0).clamp(least, most);
        let limit = profile.cost(gathered) * (1.0 + tolerance);
        let enough = first_where(1, gathered, |size| profile.cost(size) <= limit).min(target);
        let skip = first_where(0, meeting, |skip| fits(skip) >= enough);
        // To give nobody up wastes executor time on a small batch. It is the better choice if those
        // left behind can still go with the next executor, and what is wasted is less than what is
        // saved.
        let first = fits(0);
        let wasted = profile.latency(first.max(1)).0 as f64 / profile.cost(gathered) - first as f64;
        let left = enough.min(waiting - first);
        if first > 0
            && wasted <= WASTE_FOR_ONE * skip as f64
            && (left == 0 || fits_after(first, signal.turn) >= left)
        {
            return (0, first);
        }
        (skip, if skip < waiting { fits(skip) } else { 0 })
    }
}

/// The first number from `low` on for which `holds`, which stays so; `high` if it does not before.
fn first_where(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// The executor time per request in a batch of a fractional size, and that of one more request.
fn costs(profile: &Profile, batch: f64) -> (f64, f64) {
    let below = (batch as usize).clamp(1, profile.max_batch());
    let above = (below + 1).min(profile.max_batch());
    let (short, long) = (profile.latency(below).0 as f64, profile.latency(above).0 as f64);
    let marginal = match above - below {
        0 if below == 1 => short,
        0 => short - profile.latency(below - 1).0 as f64,
        _ => long - short,
    };
    let latency = short + (long - short) * (batch - below as f64).clamp(0.0, 1.0);
    (latency / batch.max(1.0), marginal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile::linear(Span(10), Span(50), Span(250)).unwrap()
    }

    #[test]
    fn costs_are_continuous_between_batch_sizes() {
        let profile = profile();
        let (two, marginal) = costs(&profile, 2.0);
        assert_eq!((two, marginal), (35.0, 10.0));
        assert!((costs(&profile, 1.9999).0 - two).abs() < 0.01);
        assert_eq!(costs(&profile, 20.0), (12.5, 10.0));
        assert_eq!(costs(&Profile::linear(Span(10), Span(50), Span(60)).unwrap(), 1.0).1, 60.0);
    }

    #[test]
    fn nothing_is_given_up_for_a_batch_that_is_hardly_cheaper() {
        // Twelve wait; the first allows eight, and every one given up allows one more. Later, none
        // is in time.
        let fits = |skip: usize, later: Span| match later {
            Span::ZERO => (8 + skip).min(12 - skip),
            _ => 0,
        };
        let tuning = Tuning::default();
        let slack = Signal { load: 0.8, turn: Span(1), ..Signal::default() };
        assert_eq!(tuning.gather(12, 12, &profile(), &slack, fits), (0, 8));
        let overload = Signal { load: 1.5, ..slack };
        assert_eq!(tuning.gather(12, 12, &profile(), &overload, fits), (2, 10));
        assert_eq!(
            tuning.gather(12, 9, &profile(), &overload, fits),
            (1, 9),
            "the target is enough"
        );
        let fits = |skip: usize, _| (8 + skip).min(12 - skip);
        let kept = tuning.gather(12, 12, &profile(), &overload, fits);
        assert_eq!(kept, (0, 8), "the other four can go with the next executor");
    }

    #[test]
    fn a_model_that_loses_more_than_others_moves_ahead_and_back() {
        let (mut tuning, slo) = (Tuning::default(), Span(1_000_000));
        let signal = Signal { bad: 0.01, ..Signal::default() };
        tuning.note(9, 1, slo, 0.0, &signal);
        let latest = Time(10_000_000);
        assert!(tuning.urgency(latest) < latest);
        tuning.note(1000, 0, slo, 0.0, &signal);
        assert_eq!(tuning.urgency(latest), latest);
        let overload = Signal { bad: 0.3, ..signal };
        tuning.note(0, 100, slo, 0.0, &overload);
        assert_eq!(tuning.urgency(latest), latest, "in overload nobody moves ahead");
    }
}
