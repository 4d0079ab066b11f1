//! Every policy by its name.

use std::fmt;
use std::str::FromStr;

use fermata_core::Span;

use crate::dispatcher::Dispatcher;
use crate::event::{Dispatch, Network};
use crate::rules::{Gather, Rules, Timeout, Window};

/// A policy that can be simulated or served with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The model and rank machines under some rules.
    Rules(Rules),
}

impl Policy {
    /// The default.
    pub const FERMATA: Self = Self::Rules(Rules::FERMATA);

    /// The names of all policies that need no parameter, the default first.
    pub fn names() -> &'static [&'static str] {
        &["fermata", "deferred", "eager"]
    }

    /// A dispatcher without models and executors.
    pub fn dispatcher(self, network: Network) -> Box<dyn Dispatch> {
        match self {
            Self::Rules(rules) => Box::new(Dispatcher::new(rules, network)),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, gather) = match text.strip_suffix("-prefix") {
            Some(name) => (name, Gather::Prefix),
            None => (text, Gather::EarlyDrop),
        };
        let rules = |window| Ok(Self::Rules(Rules { window, gather }));
        match name {
            "fermata" if gather == Gather::EarlyDrop => Ok(Self::FERMATA),
            "deferred" => rules(Window::Deferred),
            "eager" => rules(Window::Eager),
            "held" => Ok(Self::Rules(Rules { window: Window::Priced, gather: Gather::EarlyDrop })),
            "dpriced" => {
                Ok(Self::Rules(Rules { window: Window::Deferred, gather: Gather::Priced }))
            }
            "epriced" => Ok(Self::Rules(Rules { window: Window::Eager, gather: Gather::Priced })),
            _ => {
                let timeout = name.strip_prefix("timeout:").and_then(parse_timeout);
                rules(Window::Timeout(timeout.ok_or_else(|| unknown(text))?))
            }
        }
    }
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
        let Self::Rules(Rules { window, gather }) = self;
        match window {
            Window::Priced => write!(f, "fermata")?,
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
