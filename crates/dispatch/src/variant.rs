//! Rules with a limit on how long batches are: what the default policy compares.

use std::sync::Arc;

use fermata_core::{Profile, Span};

use crate::event::ModelSpec;
use crate::rules::Rules;

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
    fn a_limited_model_has_batches_up_to_the_limit_and_single_requests() {
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(1.0), ms(4.0), ms(30.0)).unwrap();
        let spec = Arc::new(ModelSpec::uniform(ms(30.0), profile));
        let most = |longest| limited(&spec, longest).profiles[0].as_ref().unwrap().max_batch();
        assert_eq!((most(Span::MAX), most(ms(10.0)), most(ms(1.0))), (26, 6, 1));
    }
}
