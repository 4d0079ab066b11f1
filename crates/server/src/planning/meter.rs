//! How many requests come for each model: over an epoch, and lately. It is told the time.

use std::collections::{BTreeMap, VecDeque};

use fermata_core::{Span, Time};

/// A difference is no accident beyond so many standard deviations. Arrivals that come at random
/// have as much variance as there are.
pub(crate) const DEVIATIONS: f64 = 3.0;

/// Counters of arrivals, as they were.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Over how long the usual rate is taken.
    epoch: Span,
    /// Over how long the rate of late is.
    lately: Span,
    models: BTreeMap<(String, String), VecDeque<(Time, u64)>>,
}

/// Requests a second of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rate {
    /// Over the last epoch, or as long as it is known.
    pub(crate) usual: f64,
    /// Over the last moments.
    pub(crate) lately: f64,
    /// How long these moments were, in seconds.
    pub(crate) seconds: f64,
}

impl Meter {
    pub(crate) fn new(epoch: Span, lately: Span) -> Self {
        Self { epoch, lately, models: BTreeMap::new() }
    }

    /// How many requests have come for each model until now. A model that is not named is
    /// forgotten.
    pub(crate) fn note(
        &mut self,
        now: Time,
        counts: impl Iterator<Item = ((String, String), u64)>,
    ) {
        let mut models = BTreeMap::new();
        for (model, count) in counts {
            let mut history = self.models.remove(&model).unwrap_or_default();
            if history.back().is_some_and(|&(_, last)| count < last) {
                history.clear(); // Its counters began anew.
            }
            history.push_back((now, count));
            while history.len() > 2 && now - history[1].0 >= self.epoch {
                history.pop_front();
            }
            models.insert(model, history);
        }
        self.models = models;
    }

    /// A model's rates. Nothing, if it was seen less than twice.
    pub(crate) fn rate(&self, model: &(String, String)) -> Rate {
        let Some(history) = self.models.get(model) else { return Rate::default() };
        let (Some(&first), Some(&last)) = (history.front(), history.back()) else {
            return Rate::default();
        };
        let long_enough = |(then, _): &&(Time, u64)| last.0 - *then >= self.lately;
        let recent = history.iter().rev().find(long_enough).copied().unwrap_or(first);
        let seconds = |from: (Time, u64)| (last.0 - from.0).0 as f64 / 1e9;
        let rate = |from: (Time, u64)| match seconds(from) {
            0.0 => 0.0,
            seconds => (last.1 - from.1) as f64 / seconds,
        };
        Rate { usual: rate(first), lately: rate(recent), seconds: seconds(recent) }
    }
}

impl Rate {
    /// What to plan for: the usual rate, or that of late if it is higher by more than accident.
    pub(crate) fn expected(&self) -> f64 {
        let deviation = (self.usual * self.seconds).sqrt();
        let more = (self.lately - self.usual) * self.seconds;
        // One request of a model that has none is no reason for anything.
        if more > DEVIATIONS * deviation.max(1.0) { self.lately } else { self.usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> (String, String) {
        ("net".to_owned(), "1".to_owned())
    }

    fn rates(rate_of: impl Fn(u64) -> u64, seconds: u64) -> Rate {
        let mut meter = Meter::new(Span::from_ms(30_000.0), Span::from_ms(5_000.0));
        let mut count = 0;
        for second in 0..=seconds {
            meter.note(Time::from_ms(1e3 * second as f64), [(model(), count)].into_iter());
            count += rate_of(second);
        }
        meter.rate(&model())
    }

    #[test]
    fn a_steady_load_has_one_rate() {
        assert_eq!(rates(|_| 40, 100), Rate { usual: 40.0, lately: 40.0, seconds: 5.0 });
        assert_eq!(rates(|_| 40, 0), Rate::default());
    }

    #[test]
    fn a_load_that_rises_is_expected_to_stay_and_one_that_falls_to_come_back() {
        let risen = rates(|second| if second < 95 { 40 } else { 100 }, 100);
        assert_eq!(risen.lately, 100.0);
        assert_eq!(risen.expected(), 100.0);
        let fallen = rates(|second| if second < 95 { 100 } else { 40 }, 100);
        assert_eq!(fallen.expected(), fallen.usual);
        assert_eq!(fallen.usual, 90.0);
    }

    #[test]
    fn what_may_be_accident_is_no_rise() {
        let noisy = rates(|second| if second < 95 { 4 } else { 5 }, 100);
        assert_eq!(noisy.expected(), noisy.usual);
        let single = rates(|second| u64::from(second == 97), 100);
        assert!(single.expected() < 0.1);
    }

    #[test]
    fn counters_that_began_anew_and_models_that_went_are_forgotten() {
        let mut meter = Meter::new(Span::from_ms(30_000.0), Span::from_ms(5_000.0));
        meter.note(Time::from_ms(0.0), [(model(), 900)].into_iter());
        meter.note(Time::from_ms(1e3), [(model(), 10)].into_iter());
        assert_eq!(meter.rate(&model()), Rate::default());
        meter.note(Time::from_ms(2e3), [(model(), 20)].into_iter());
        assert_eq!(meter.rate(&model()).usual, 10.0);
        meter.note(Time::from_ms(3e3), std::iter::empty());
        assert_eq!(meter.rate(&model()), Rate::default());
    }
}
