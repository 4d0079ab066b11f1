//! The rules that a contest compares.

use fermata_core::Span;

use crate::rules::{Gather, Rules, Spare, Timeout, Window};
use crate::variant::Variant;

/// How many variants there are.
pub(super) const VARIANTS: usize = 24;
/// The default rules, first in every list of variants.
pub(super) const DEFAULT: usize = 0;

/// Limits on a batch under the default rules and under eager ones, as multiples of the tightest
/// objective.
const LIMITS: [f64; 8] = [4.5, 3.0, 2.0, 1.4, 0.95, 0.67, 0.47, 0.33];
const EAGER_LIMITS: [f64; 3] = [3.0, 1.4, 0.95];
const TIMEOUTS_PERCENT: [u32; 4] = [5, 10, 20, 35];
/// How long models are taken to bear to wait, as multiples of how long they can.
const BEARS: [f64; 4] = [0.5, 0.75, 1.4, 2.0];

/// All variants of a pool whose tightest objective is `tightest`, the default rules first.
pub(super) fn variants(spare: Spare, tightest: Span) -> [Variant; VARIANTS] {
    let limit = |times: f64| Span((tightest.0 as f64 * times) as u64);
    let default = Rules::priced(spare);
    let other = match spare {
        Spare::Latency => Rules::RELEASE,
        Spare::Release => Rules::FERMATA,
    };
    let timeout = |percent| Rules {
        window: Window::Timeout(Timeout::PercentOfSlo(percent)),
        gather: Gather::EarlyDrop,
    };
    let unlimited = [default, other, Rules::DEFERRED, Rules::EAGER].into_iter();
    let variant = |rules, longest, bears| Variant { rules, longest, bears, leaves_one: false };
    let leaves_one = Variant { leaves_one: true, ..variant(default, Span::MAX, 1.0) };
    let unlimited = unlimited.chain(TIMEOUTS_PERCENT.map(timeout));
    let each = unlimited
        .map(|rules| variant(rules, Span::MAX, 1.0))
        .chain(LIMITS.map(|times| variant(default, limit(times), 1.0)))
        .chain(EAGER_LIMITS.map(|times| variant(Rules::EAGER, limit(times), 1.0)))
        .chain(BEARS.map(|times| variant(default, Span::MAX, times)))
        .chain([leaves_one]);
    let mut all = [variant(default, Span::MAX, 1.0); VARIANTS];
    all.iter_mut().zip(each).for_each(|(place, variant)| *place = variant);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_differ_and_the_default_is_first() {
        for spare in [Spare::Latency, Spare::Release] {
            let all = variants(spare, Span::from_ms(10.0));
            assert_eq!(all[DEFAULT].rules, Rules::priced(spare));
            assert_eq!(all[DEFAULT].longest, Span::MAX);
            for (at, variant) in all.iter().enumerate() {
                assert!(!all[..at].contains(variant), "{variant:?} is there twice");
            }
        }
    }
}
