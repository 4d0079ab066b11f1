//! The rules a model machine follows: when a batch may start, and which requests it takes.

use std::str::FromStr;

use fermata_core::Span;

/// A policy of the deferred machine: one window rule and one gathering rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// From when on a gathered batch may start.
    pub window: Window,
    /// Which waiting requests make up the batch.
    pub gather: Gather,
}

/// From when on a gathered batch may start, though an executor is idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
    /// At frontrun, `d - l(b + 1)`: from then on no request can join (Symphony 3.1).
    Deferred,
    /// At once.
    Eager,
    /// Held while holding pays: see `docs/policy.md`.
    Priced(Spare),
    /// This long after the batch's most urgent request came (Symphony 3.4).
    Timeout(Timeout),
}

/// What an executor is worth that nobody needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spare {
    /// It is there anyway: requests are answered as soon as can be without losing goodput.
    #[default]
    Latency,
    /// It can be given away: batches are filled, so that as few executors as possible are busy.
    Release,
}

/// How long a timeout is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timeout {
    /// The same for every model.
    Fixed(Span),
    /// In hundredths of the model's SLO.
    PercentOfSlo(u32),
}

/// Which waiting requests make up the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gather {
    /// As many as the most urgent one's deadline allows.
    Prefix,
    /// Urgent ones are given up until a batch of the target size is in time, which is then filled
    /// further while it stays so (Nexus 6.3).
    EarlyDrop,
    /// Urgent ones are given up where the executor's time is worth more than they are: see
    /// `docs/policy.md`.
    Priced,
}

impl Rules {
    /// Symphony as printed, with Nexus' early drop.
    pub const DEFERRED: Self = Self { window: Window::Deferred, gather: Gather::EarlyDrop };
    /// Starts as soon as an executor is idle, with early drop.
    pub const EAGER: Self = Self { window: Window::Eager, gather: Gather::EarlyDrop };
    /// The default.
    pub const FERMATA: Self = Self::priced(Spare::Latency);
    /// The default where spare executors can be given away.
    pub const RELEASE: Self = Self::priced(Spare::Release);

    /// The default for this use of spare executors.
    pub const fn priced(spare: Spare) -> Self {
        Self { window: Window::Priced(spare), gather: Gather::Priced }
    }
}

impl Spare {
    /// Its name, as it is given to commands and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Release => "release",
        }
    }
}

impl FromStr for Spare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latency" => Ok(Self::Latency),
            "release" => Ok(Self::Release),
            _ => Err(format!("'{text}' is not a use of spare executors: say latency or release")),
        }
    }
}

impl Timeout {
    /// The timeout of a model with this SLO.
    pub fn of(self, slo: Span) -> Span {
        match self {
            Self::Fixed(span) => span,
            Self::PercentOfSlo(percent) => Span(slo.0 / 100) * u64::from(percent),
        }
    }
}
