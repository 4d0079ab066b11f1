//! Integer nanoseconds. `Time` is a moment since the run began, `Span` a length.
//!
//! All arithmetic saturates: `Time::NEVER` plus anything is still never, and a deadline nearer than
//! a latency gives the beginning of time, which every comparison reads as "too late".

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// Nanoseconds since the run began. Dispatch is told the time; it never asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Time {
    /// The beginning of the run.
    pub const START: Self = Self(0);
    /// Later than everything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// A moment `ms` milliseconds after the start.
    pub fn from_ms(ms: f64) -> Self {
        Self::START + Span::from_ms(ms)
    }

    /// The moment one nanosecond later.
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Seconds since the start, for reports.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds since the start, for reports.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any run.
    pub const MAX: Self = Self(u64::MAX);

    /// Rounded to the nearest nanosecond; negative values become zero.
    pub fn from_ms(ms: f64) -> Self {
        Self((ms * 1e6).round() as u64)
    }

    /// Rounded to the nearest nanosecond; negative values become zero.
    pub fn from_secs(secs: f64) -> Self {
        Self((secs * 1e9).round() as u64)
    }

    /// Seconds, for reports.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds, for reports.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add<Span> for Time {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    #[inline]
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Sub for Time {
    type Output = Span;
    /// Zero where `earlier` is in truth the later one.
    #[inline]
    fn sub(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    #[inline]
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}ms", self.as_ms())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}ms", self.as_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::NEVER + Span(1), Time::NEVER);
        assert_eq!(Time(3) - Span(5), Time::START);
        assert_eq!(Time(3) - Time(5), Span::ZERO);
        assert_eq!(Span::from_ms(-1.0), Span::ZERO);
    }
}
