//! Every policy by its name.

use std::fmt;
use std::str::FromStr;

use fermata_core::Span;

use crate::adaptive::Adaptive;
use crate::baseline::{Central, Clipper, Clockwork, Nexus, Orloj, Shepherd, TfServing};
use crate::baseline::{orloj, tf_serving};
use crate::dispatcher::Dispatcher;
use crate::event::{Dispatch, Network};
use crate::rules::{Gather, Rules, Spare, Timeout, Window};

/// A policy that can be simulated or served with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The model and rank machines under the default rules, and under others where those lose fewer
    /// requests.
    Adaptive(Spare),
    /// Batch sizes by trial and error, lazy dropping.
    Clipper,
    /// Plans ahead, the most urgent batch first.
    Clockwork,
    /// Models placed on executors, early dropping.
    Nexus,
    /// Run times as distributions, priorities that change with time.
    Orloj {
        /// The parameter of the anticipated delay, which is exponential: per millisecond.
        delay_rate: f64,
    },
    /// The model and rank machines under some rules.
    Rules(Rules),
    /// The largest batch first, with preemption.
    Shepherd,
    /// A batch goes when it is full or its oldest request has waited for the timeout.
    TfServing {
        /// How long a request waits at most for others.
        timeout: Span,
        /// The largest batch.
        max_batch: usize,
    },
}

impl Policy {
    /// The default.
    pub const FERMATA: Self = Self::Adaptive(Spare::Latency);
    /// The default where spare executors can be given away.
    pub const RELEASE: Self = Self::Adaptive(Spare::Release);

    /// The names of all policies that need no parameter, the default first.
    pub fn names() -> &'static [&'static str] {
        &[
            "fermata",
            "deferred",
            "eager",
            "clockwork",
            "shepherd",
            "nexus",
            "clipper",
            "tfserving",
            "orloj",
        ]
    }

    /// The same with this use of spare executors; policies that know no price have none.
    pub fn with_spare(self, spare: Spare) -> Self {
        match self {
            Self::Adaptive(_) => Self::Adaptive(spare),
            Self::Rules(Rules { window: Window::Priced(_), gather }) => {
                Self::Rules(Rules { window: Window::Priced(spare), gather })
            }
            other => other,
        }
    }

    /// The rules that it begins with, if it is the model and rank machines under some rules.
    pub fn rules(self) -> Option<Rules> {
        match self {
            Self::Adaptive(spare) => Some(Rules::priced(spare)),
            Self::Rules(rules) => Some(rules),
            _ => None,
        }
    }

    /// A dispatcher without models and executors.
    pub fn dispatcher(self, network: Network) -> Box<dyn Dispatch> {
        match self {
            Self::Adaptive(spare) => Box::new(Adaptive::new(spare, network)),
            Self::Clipper => Box::new(Central::new(Clipper::default(), network)),
            Self::Clockwork => Box::new(Central::new(Clockwork::default(), network)),
            Self::Nexus => Box::new(Nexus::new(network)),
            Self::Orloj { delay_rate } => Box::new(Orloj::new(delay_rate, network)),
            Self::Shepherd => Box::new(Central::new(Shepherd::default(), network)),
            Self::TfServing { timeout, max_batch } => {
                Box::new(Central::new(TfServing::new(timeout, max_batch), network))
            }
            Self::Rules(rules) => Box::new(Dispatcher::new(rules, network)),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clipper" => return Ok(Self::Clipper),
            "clockwork" => return Ok(Self::Clockwork),
            "fermata:latency" => return Ok(Self::FERMATA),
            "fermata:release" => return Ok(Self::RELEASE),
            "fermata:fixed" => return Ok(Self::Rules(Rules::FERMATA)),
            "fermata:release:fixed" => return Ok(Self::Rules(Rules::RELEASE)),
            "nexus" => return Ok(Self::Nexus),
            "shepherd" => return Ok(Self::Shepherd),
            _ => {}
        }
        if let Some(numbers) = text.strip_prefix("tfserving") {
            return parse_tf_serving(numbers).ok_or_else(|| unknown(text));
        }
        if let Some(rate) = text.strip_prefix("orloj") {
            return parse_orloj(rate).ok_or_else(|| unknown(text));
        }
        let (name, gather) = match text.strip_suffix("-prefix") {
            Some(name) => (name, Gather::Prefix),
            None => (text, Gather::EarlyDrop),
        };
        let rules = |window| Ok(Self::Rules(Rules { window, gather }));
        match name {
            "fermata" if gather == Gather::EarlyDrop => Ok(Self::FERMATA),
            "deferred" => rules(Window::Deferred),
            "eager" => rules(Window::Eager),
            _ => {
                let timeout = name.strip_prefix("timeout:").and_then(parse_timeout);
                rules(Window::Timeout(timeout.ok_or_else(|| unknown(text))?))
            }
        }
    }
}

/// `:TIMEOUT` or `:TIMEOUT,MAXBATCH`, or nothing for the defaults.
fn parse_tf_serving(text: &str) -> Option<Policy> {
    let defaults = (tf_serving::TIMEOUT, tf_serving::MAX_BATCH);
    let (timeout, max_batch) = match text.strip_prefix(':') {
        None if text.is_empty() => defaults,
        None => return None,
        Some(numbers) => {
            let (timeout, max_batch) = match numbers.split_once(',') {
                Some((timeout, max_batch)) => (timeout, max_batch.parse().ok()?),
                None => (numbers, defaults.1),
            };
            let Timeout::Fixed(timeout) = parse_timeout(timeout)? else { return None };
            (timeout, max_batch)
        }
    };
    (max_batch > 0).then_some(Policy::TfServing { timeout, max_batch })
}

/// `:RATE` per millisecond, or nothing for the default.
fn parse_orloj(text: &str) -> Option<Policy> {
    let delay_rate = match text.strip_prefix(':') {
        None if text.is_empty() => orloj::DELAY_RATE,
        None => return None,
        Some(rate) => rate.parse().ok()?,
    };
    orloj::DELAY_RATES.contains(&delay_rate).then_some(Policy::Orloj { delay_rate })
}

fn parse_timeout(text: &str) -> Option<Timeout> {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok().map(Timeout::PercentOfSlo);
    }
    let ms: f64 = text.strip_suffix("ms")?.parse().ok()?;
    (ms >= 0.0 && ms.is_finite()).then(|| Timeout::Fixed(Span::from_ms(ms)))
}

fn unknown(text: &str) -> String {
    format!("unknown policy '{text}'")
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { window, gather } = match self {
            Self::Adaptive(Spare::Latency) => return write!(f, "fermata"),
            Self::Adaptive(Spare::Release) => return write!(f, "fermata:release"),
            Self::Clipper => return write!(f, "clipper"),
            Self::Clockwork => return write!(f, "clockwork"),
            Self::Nexus => return write!(f, "nexus"),
            Self::Orloj { delay_rate } if *delay_rate == orloj::DELAY_RATE => {
                return write!(f, "orloj");
            }
            Self::Orloj { delay_rate } => return write!(f, "orloj:{delay_rate}"),
            Self::Shepherd => return write!(f, "shepherd"),
            Self::TfServing { timeout, max_batch } => {
                return write!(f, "tfserving:{}ms,{max_batch}", timeout.as_ms());
            }
            Self::Rules(rules) => rules,
        };
        match window {
            Window::Priced(Spare::Latency) => write!(f, "fermata:fixed")?,
            Window::Priced(Spare::Release) => write!(f, "fermata:release:fixed")?,
            Window::Deferred => write!(f, "deferred")?,
            Window::Eager => write!(f, "eager")?,
            Window::Timeout(Timeout::Fixed(span)) => write!(f, "timeout:{}ms", span.as_ms())?,
            Window::Timeout(Timeout::PercentOfSlo(percent)) => write!(f, "timeout:{percent}%")?,
        }
        match gather {
            Gather::Prefix => write!(f, "-prefix"),
            Gather::EarlyDrop | Gather::Priced => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_are_named_as_they_are_parsed() {
        for name in [
            "clipper",
            "clockwork",
            "nexus",
            "orloj",
            "orloj:0.01",
            "fermata",
            "fermata:fixed",
            "fermata:release",
            "fermata:release:fixed",
            "shepherd",
            "tfserving:2.5ms,16",
        ] {
            assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
        }
        assert_eq!("tfserving".parse::<Policy>().unwrap().to_string(), "tfserving:10ms,32");
        assert_eq!("tfserving:5ms".parse::<Policy>().unwrap().to_string(), "tfserving:5ms,32");
        assert_eq!("orloj:1e-4".parse::<Policy>().unwrap().to_string(), "orloj");
        for wrong in [
            "tfserving:",
            "tfserving:5%",
            "tfserving:5ms,0",
            "tfservings",
            "clipper-prefix",
            "orloj:",
            "orloj:0",
            "orloj:nan",
            "orloj:2",
            "orlojs",
        ] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }
}
