//! What is known of a model while it is served: its profiles on each class of executors, and what
//! follows them.

use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span, Spread, Time};
use fermata_dispatch::ModelSpec;

use crate::CLASS;
use crate::learner::{ProfileLearner, Profiles};
use crate::message::Ran;

impl Profiles {
    fn learner(self, profile: &Option<Arc<Profile>>, slo: Span) -> Option<Box<dyn ProfileLearner>> {
        match self {
            Self::True => None,
            Self::Measured(begin) => Some(begin((**profile.as_ref()?).clone(), slo)),
        }
    }
}

/// One model.
pub(crate) struct Model {
    worth: Profiles,
    /// As it was given.
    base: Arc<ModelSpec>,
    /// As it is known now.
    spec: Arc<ModelSpec>,
    /// By class.
    learners: Vec<Option<Box<dyn ProfileLearner>>>,
}

impl Model {
    pub(crate) fn new(base: Arc<ModelSpec>, worth: Profiles) -> Self {
        let profiles = base.profiles.iter();
        let learners = profiles.map(|profile| worth.learner(profile, base.slo)).collect();
        Self { worth, spec: base.clone(), base, learners }
    }

    /// Whether what a batch takes on this class depends on the inputs.
    pub(crate) fn is_spread(&self, class: ClassId) -> bool {
        self.spec.profile(class).is_some_and(|profile| profile.spread().is_some())
    }

    /// Learns from a batch that has run how fast the model is now on that class; says so, if that
    /// is news.
    pub(crate) fn observe(&mut self, now: Time, ran: &Ran) -> Option<Arc<ModelSpec>> {
        if ran.size == 0 {
            return None;
        }
        let learner = self.learners.get_mut(ran.class.index())?.as_mut()?;
        let profile = learner.observe(now, ran.size, ran.latency, ran.took)?;
        Some(self.set(ran.class, profile))
    }

    /// It has other profiles. Where they are those of before, what was learned stays.
    pub(crate) fn respec(&mut self, base: &Arc<ModelSpec>) -> Arc<ModelSpec> {
        let mut spec = (**base).clone();
        let mut learners = Vec::with_capacity(spec.profiles.len());
        for (at, profile) in spec.profiles.iter_mut().enumerate() {
            let class = ClassId(at as u16);
            let is_same =
                base.slo == self.base.slo && base.profile(class) == self.base.profile(class);
            if is_same && profile.is_some() {
                *profile = self.spec.profile(class).cloned();
                learners.push(self.learners[at].take());
            } else {
                learners.push(self.worth.learner(profile, base.slo));
            }
        }
        (self.base, self.spec, self.learners) = (base.clone(), Arc::new(spec), learners);
        self.spec.clone()
    }

    /// Requests take something else than before. They are run again on the first class only.
    pub(crate) fn respread(&mut self, spread: Arc<Spread>) -> Option<Arc<ModelSpec>> {
        self.spec.profile(CLASS)?;
        let profile = match &mut self.learners[CLASS.index()] {
            Some(learner) => learner.rebase(spread, self.spec.slo),
            None => Profile::spread_out(spread),
        };
        Some(self.set(CLASS, profile))
    }

    fn set(&mut self, class: ClassId, profile: Profile) -> Arc<ModelSpec> {
        let mut spec = (*self.spec).clone();
        spec.profiles[class.index()] = Some(Arc::new(profile));
        self.spec = Arc::new(spec);
        self.spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::{ExecutorId, ModelId};

    use super::*;

    /// Believes after a few batches that all take as much longer as the last one did.
    struct Believer {
        base: Profile,
        seen: usize,
    }

    impl ProfileLearner for Believer {
        fn observe(&mut self, _: Time, _: usize, planned: Span, took: Span) -> Option<Profile> {
            self.seen += 1;
            let longer = took.0 as f64 / planned.0 as f64;
            let sizes = 1..=self.base.max_batch();
            let table = sizes.map(|size| Span::from_ms(longer * self.base.latency(size).as_ms()));
            (self.seen == 4).then(|| Profile::from_table(table).unwrap())
        }

        fn rebase(&mut self, spread: Arc<Spread>, _: Span) -> Profile {
            Profile::spread_out(spread)
        }
    }

    const MEASURED: Profiles = Profiles::Measured(|base, _| Box::new(Believer { base, seen: 0 }));

    fn profile(ms: f64) -> Option<Arc<Profile>> {
        let profile = Profile::linear(Span::from_ms(ms), Span::from_ms(ms), Span::from_ms(20.0));
        Some(Arc::new(profile.unwrap()))
    }

    fn spec(profiles: Vec<Option<Arc<Profile>>>) -> Arc<ModelSpec> {
        Arc::new(ModelSpec::new(Span::from_ms(100.0), profiles))
    }

    /// Batches of one that take twice as long as they should, until that is believed.
    fn slow_down(model: &mut Model, class: u16, ms: f64) -> Arc<ModelSpec> {
        let class = ClassId(class);
        let took = Span::from_ms(4.0 * ms);
        let ran = Ran {
            executor: ExecutorId(0),
            class,
            model: ModelId(0),
            size: 1,
            took,
            latency: Span::from_ms(2.0 * ms),
            overrun: Span::ZERO,
        };
        let mut news = (0..100).filter_map(|at| model.observe(Time::from_ms(at as f64), &ran));
        news.next().expect("it is news in the end")
    }

    fn alone(spec: &ModelSpec, class: u16) -> f64 {
        spec.profile(ClassId(class)).unwrap().shortest().as_ms()
    }

    #[test]
    fn what_is_seen_on_a_class_corrects_that_class_only() {
        let mut model = Model::new(spec(vec![profile(1.0), None, profile(2.0)]), MEASURED);
        let news = slow_down(&mut model, 2, 2.0);
        assert_eq!((alone(&news, 0), alone(&news, 2)), (2.0, 8.0));
        assert!(news.profile(ClassId(1)).is_none());
        let news = slow_down(&mut model, 0, 1.0);
        assert_eq!((alone(&news, 0), alone(&news, 2)), (4.0, 8.0));
    }

    #[test]
    fn what_was_learned_of_a_class_stays_when_another_comes_or_goes() {
        let mut model = Model::new(spec(vec![profile(1.0)]), MEASURED);
        slow_down(&mut model, 0, 1.0);
        let both = model.respec(&spec(vec![profile(1.0), profile(2.0)]));
        assert_eq!((alone(&both, 0), alone(&both, 1)), (4.0, 4.0));
        let news = slow_down(&mut model, 1, 2.0);
        assert_eq!((alone(&news, 0), alone(&news, 1)), (4.0, 8.0));
        let one = model.respec(&spec(vec![None, profile(2.0)]));
        assert_eq!(alone(&one, 1), 8.0);
        let both = model.respec(&spec(vec![profile(1.0), profile(3.0)]));
        assert_eq!((alone(&both, 0), alone(&both, 1)), (2.0, 6.0), "both are other than before");
    }

    #[test]
    fn what_is_true_or_not_there_is_not_corrected_and_a_batch_of_nobody_teaches_nothing() {
        let mut model = Model::new(spec(vec![profile(1.0)]), Profiles::True);
        let ran = |class, size| Ran {
            executor: ExecutorId(0),
            class: ClassId(class),
            model: ModelId(0),
            size,
            took: Span::from_ms(50.0),
            latency: Span::from_ms(2.0),
            overrun: Span::ZERO,
        };
        let mut measured = Model::new(spec(vec![profile(1.0)]), MEASURED);
        for at in 0..100 {
            let now = Time::from_ms(at as f64);
            assert_eq!(model.observe(now, &ran(0, 1)), None);
            assert_eq!(measured.observe(now, &ran(1, 1)), None);
            assert_eq!(measured.observe(now, &ran(0, 0)), None);
        }
    }
}
