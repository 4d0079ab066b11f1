//! Which of the candidates that wait is granted an executor, where no batch may block others
//! ([`blocking`](crate::blocking)).

use fermata_core::{ClassId, ModelId, Span, Time};

use super::RankMachine;
use crate::blocking::{Choice, Need, Scene, Waiting};
use crate::event::ModelSpec;

/// A model can always bear to wait for an executor if it can wait this many times as long as it is
/// from one that becomes free to the next: if they do so at random, none does in that time once in
/// four hundred times.
const PAUSES: u64 = 6;

/// No more candidates than this are compared with the most urgent one: where more models wait, an
/// executor is never far.
const CHOICES_MAX: usize = 12;

impl RankMachine {
    /// How long a model's batches take on each class.
    pub fn set_tables(&mut self, model: ModelId, spec: &ModelSpec) {
        for at in 0..spec.profiles.len() {
            let class = ClassId(at as u16);
            let ranks = self.class_mut(class);
            ranks.tables[model.index()] =
                spec.profile(class).map(|profile| profile.table().clone());
        }
    }

    /// What a model needs that is not to be blocked.
    pub fn set_need(&mut self, model: ModelId, need: Need) {
        let moment = if need.rate > 0.0 { Time(need.bears.0) } else { Time::NEVER };
        let before = std::mem::replace(&mut self.needs[model.index()], need);
        self.asked += usize::from(need.rate > 0.0);
        self.asked -= usize::from(before.rate > 0.0);
        self.bears.set(model.index(), moment);
    }

    /// Executors become free this far from each other, on average.
    pub fn set_pause(&mut self, pause: Span) {
        self.borne = pause * PAUSES;
    }

    /// Which candidate the executor is granted to, of which `first` is the most urgent.
    pub(super) fn choose(
        &mut self,
        now: Time,
        class: ClassId,
        executor: usize,
        first: usize,
    ) -> Choice {
        let ranks = &self.classes[class.index()];
        let alone = Choice::run(first);
        let Some(Some(table)) = ranks.tables.get(first) else {
            return alone;
        };
        let begin = self.executors[executor].free_at.max(now);
        let size = ranks.asks[first].size as usize;
        let takes = table.latency(size.min(table.max_batch()));
        let mut scene = std::mem::take(&mut self.scene);
        self.set_scene(&mut scene, now, class, begin, takes);
        let choice = if scene.is_without(first) {
            alone
        } else {
            let mut waiting = Vec::new();
            let mut longest = takes;
            ranks.waiting.each_before(Time::NEVER, |model| {
                // An executor that is granted ahead of time is there sooner for those whose input
                // takes longer on the way. The others could not use it yet.
                let is_early = begin - self.lead(model, ranks.asks[model].size) > now;
                if (waiting.len() == CHOICES_MAX || is_early) && model != first {
                    return;
                }
                if let Some(Some(table)) = ranks.tables.get(model) {
                    let (ask, need) = (ranks.asks[model], self.needs[model]);
                    let one = Waiting { model, ask, need, table };
                    longest = longest.max(one.full());
                    waiting.push(one);
                }
            });
            self.set_scene(&mut scene, now, class, begin, longest);
            self.add_executors(&mut scene, class, executor);
            scene.choose(first, &waiting)
        };
        self.scene = scene;
        choice
    }

    /// Whether some model may have to wait for an executor longer than it can bear.
    #[inline]
    pub(crate) fn may_block(&self) -> bool {
        self.unblocks && self.asked > 1 && self.bears.earliest().0 <= self.borne.0
    }

    /// The model that can bear least to wait, of those that are asked for.
    pub(crate) fn least_bearing(&self) -> Option<ModelId> {
        let is_asked = self.bears.earliest() != Time::NEVER;
        self.bears.first().filter(|_| is_asked).map(|model| ModelId(model as u32))
    }

    /// Who may need an executor while a batch runs for this long.
    fn set_scene(&self, scene: &mut Scene, now: Time, class: ClassId, begin: Time, takes: Span) {
        let ranks = &self.classes[class.index()];
        scene.clear(now, begin);
        // Until their latest moment, candidates grow: they may have to start a good deal sooner.
        let horizon = begin + takes + takes;
        let mut waits = |model: usize| {
            if let Some(Some(table)) = ranks.tables.get(model) {
                scene.add_waiting(model, &self.needs[model], &ranks.asks[model], table);
            }
        };
        ranks.waiting.each_before(horizon, &mut waits);
        ranks.held.each_before(horizon, &mut waits);
        // With nothing waiting they do not: only what has to be done before them counts.
        let horizon = begin + takes + Span(takes.0 / 4);
        self.bears.each_before(Time((horizon - now).0), |model| {
            let is_empty = ranks.waiting.get(model) == Time::NEVER
                && ranks.held.get(model) == Time::NEVER
                && matches!(ranks.tables.get(model), Some(Some(_)));
            if is_empty {
                scene.add_quiet(model, &self.needs[model]);
            }
        });
    }

    /// The other executors of the class, as far as they can meet a need.
    fn add_executors(&self, scene: &mut Scene, class: ClassId, executor: usize) {
        let ranks = &self.classes[class.index()];
        let idle = ranks.idle.len() - usize::from(ranks.idle.contains(executor));
        scene.add_idle(idle);
        if idle < scene.needs() {
            ranks.ends.each_before(Time::NEVER, |other| {
                if other != executor {
                    scene.add_busy(ranks.ends.get(other));
                }
            });
        }
    }
}
