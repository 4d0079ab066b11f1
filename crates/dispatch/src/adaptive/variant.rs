//! The rules that a contest compares.

use std::sync::Arc;

use fermata_core::{Profile, Span};

use crate::event::ModelSpec;
use crate::rules::{Gather, Rules, Spare, Timeout, Window};

/// Rules, with or without a limit on the length of a batch, that block others less or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Variant {
    pub(crate) rules: Rules,
    /// The longest batch of more than one request.
    pub(crate) longest: Span,
    /// Models are taken to bear to wait this many times as long as they can.
    pub(crate) bears: f64,
    /// Of two executors one is taken to be left to tight objectives.
    pub(crate) leaves_one: bool,
}

/// How many variants there are.
pub(super) const VARIANTS: usize = 24;
/// The default rules, first in every list of variants.
pub(super) const DEFAULT: usize = 0;

/// Limits on a batch under the default rules and under eager ones, as multiples of the tightest objective.
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

/// The same model with no batch longer than `longest`, but for batches of one request.
pub(crate) fn limited(spec: &Arc<ModelSpec>, longest: Span) -> Arc<ModelSpec> {
    if longest == Span::MAX {
        return spec.clone();
    }
    let mut limited = ModelSpec::clone(spec);
    for profile in limited.profiles.iter_mut().flatten() {
        let sizes = profile.largest_within(longest).max(1);
        if sizes < profile.max_batch() {
            let table = (1..=sizes).map(|size| profile.latency(size));
            *profile = Arc::new(Profile::from_table(table).expect("a part of a sound profile"));
        }
    }
    Arc::new(limited)
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

    #[test]
    fn a_limited_model_has_batches_up_to_the_limit_and_single_requests() {
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(1.0), ms(4.0), ms(30.0)).unwrap();
        let spec = Arc::new(ModelSpec::uniform(ms(30.0), profile));
        let most = |longest| limited(&spec, longest).profiles[0].as_ref().unwrap().max_batch();
        assert_eq!((most(Span::MAX), most(ms(10.0)), most(ms(1.0))), (26, 6, 1));
    }
}
