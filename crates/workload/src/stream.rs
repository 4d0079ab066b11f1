//! One model's arrivals: gaps of mean one, stretched by a rate.

use std::sync::Arc;

use fermata_core::Time;

use crate::gaps::Gaps;
use crate::rate::Rate;

/// A source of arrival moments, never going back.
#[derive(Clone, Debug)]
pub struct Stream {
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Steady { gaps: Gaps, mean_gap_ns: f64, last_ns: f64 },
    Stepped { gaps: Gaps, steps: Arc<[(Time, f64)]>, at: usize, last_ns: f64 },
    Recorded { times: Arc<[Time]>, at: usize },
}

impl Stream {
    /// Arrivals at this rate.
    pub fn new(gaps: Gaps, rate: &Rate) -> Self {
        let kind = match rate {
            Rate::Constant(rate) => {
                Kind::Steady { gaps, mean_gap_ns: 1e9 / rate.max(0.0), last_ns: 0.0 }
            }
            Rate::Steps(steps) => {
                let last_ns = steps.first().map_or(0.0, |(from, _)| from.0 as f64);
                Kind::Stepped { gaps, steps: steps.clone(), at: 0, last_ns }
            }
        };
        Self { kind }
    }

    /// Arrivals at these moments, in order.
    pub fn recorded(times: Arc<[Time]>) -> Self {
        Self { kind: Kind::Recorded { times, at: 0 } }
    }

    /// The next arrival; `Time::NEVER` when there is none.
    #[inline]
    pub fn next_arrival(&mut self) -> Time {
        match &mut self.kind {
            Kind::Steady { gaps, mean_gap_ns, last_ns } => {
                *last_ns += gaps.draw() * *mean_gap_ns;
                Time(*last_ns as u64)
            }
            Kind::Stepped { gaps, steps, at, last_ns } => {
                let mut left = gaps.draw();
                while *at < steps.len() {
                    let per_ns = steps[*at].1 / 1e9;
                    let until = steps.get(*at + 1).map_or(f64::INFINITY, |(from, _)| from.0 as f64);
                    let within = (until - *last_ns) * per_ns;
                    if left < within {
                        *last_ns += left / per_ns;
                        return Time(*last_ns as u64);
                    }
                    if until.is_infinite() {
                        break; // The last rate is zero: nothing comes any more.
                    }
                    left -= within;
                    *last_ns = until;
                    *at += 1;
                }
                Time::NEVER
            }
            Kind::Recorded { times, at } => {
                *at += 1;
                times.get(*at - 1).copied().unwrap_or(Time::NEVER)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gaps::Process;

    fn count(mut stream: Stream, until: Time) -> usize {
        std::iter::repeat_with(|| stream.next_arrival()).take_while(|&time| time < until).count()
    }

    #[test]
    fn rates_are_kept() {
        let gaps = || Gaps::new(Process::Poisson, 1, 1);
        let steady = Stream::new(gaps(), &Rate::Constant(1000.0));
        assert!(count(steady, Time::from_ms(10_000.0)).abs_diff(10_000) < 300);
        let steps = [(Time::from_ms(0.0), 100.0), (Time::from_ms(5_000.0), 1900.0)];
        let stepped = Stream::new(gaps(), &Rate::Steps(steps.into()));
        assert!(count(stepped, Time::from_ms(10_000.0)).abs_diff(10_000) < 300);
        let ended = [(Time::from_ms(0.0), 100.0), (Time::from_ms(1_000.0), 0.0)];
        let ended = Stream::new(gaps(), &Rate::Steps(ended.into()));
        assert!(count(ended, Time::NEVER).abs_diff(100) < 40);
    }

    #[test]
    fn streams_are_independent_and_repeatable() {
        let draw = |seed, stream| {
            let gaps = Gaps::new(Process::Gamma(0.3), seed, stream);
            let mut stream = Stream::new(gaps, &Rate::Constant(50.0));
            (0..20).map(|_| stream.next_arrival()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
