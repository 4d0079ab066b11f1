//! Which batches would stand in the way of others: no batch is preempted, so a long one makes a
//! tight objective wait for its end.
//!
//! Every model *needs* an executor by some moment. A model whose requests wait needs one by the
//! latest moment of its candidate; a model of which nothing waits, by the moment until which a
//! request that comes right now can bear to wait. Needs are met in the order of those moments, each
//! by the executor that is free first. A batch blocks the models whose needs only its own executor
//! could meet in time. `docs/policy.md` derives the rule.

use fermata_core::{Span, Table, Time};

use crate::candidate::Candidate;

/// What others must know of a model that they may block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Need {
    /// A request that finds nothing of its model waiting can bear to wait this long for an
    /// executor.
    pub bears: Span,
    /// How long the model's batches take then.
    pub takes: Span,
    /// How many requests those batches have.
    pub batch: f64,
    /// Requests per nanosecond; zero for a model that is quiet.
    pub rate: f64,
}

impl Need {
    /// The mean time between two requests, in nanoseconds.
    fn gap(&self) -> f64 {
        1.0 / self.rate.max(RATE_MIN)
    }
}

/// No model is asked for less often: one request in a quarter of an hour.
const RATE_MIN: f64 = 1e-12;

/// A model's candidate, as it waits for an executor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ask {
    /// Of several candidates the one with the least goes first.
    pub(crate) urgency: Time,
    /// It may start until then.
    pub(crate) latest: Time,
    /// When its least urgent request must be answered.
    pub(crate) due_last: Time,
    /// How many requests it has.
    pub(crate) size: u32,
}

impl Ask {
    /// What must be known of a candidate.
    #[inline]
    pub(crate) fn of(candidate: &Candidate) -> Self {
        let &Candidate { size, latest, due_last, urgency, .. } = candidate;
        Self { urgency, latest, due_last, size }
    }
}

/// A candidate that an executor could be granted to.
#[derive(Clone, Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) model: usize,
    pub(crate) ask: Ask,
    pub(crate) need: Need,
    pub(crate) table: &'a Table,
}

/// A need of a model, in the order in which they are met.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pressing {
    by: Time,
    model: usize,
    takes: Span,
    /// The number of the model's waiting requests over its rate; none, if nothing waits.
    waiting_ns: Option<f64>,
    bears: Span,
    gap_ns: f64,
}

/// Who needs an executor, and which other executors there are. The memory is reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    now: Time,
    /// When the batch in question would begin.
    begin: Time,
    needs: Vec<Pressing>,
    /// When the other executors are free.
    free: Vec<Time>,
    /// The same while needs are met.
    trial: Vec<Time>,
}

/// What a batch does to others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Harm {
    /// The longest batch that blocks no other model.
    limit: Span,
    /// For how long requests of others would come in vain, added up over models, in nanoseconds.
    blocked_ns: f64,
    /// What the executor has to do for others after the batch.
    work: Span,
    /// When another executor is close enough to the end of its batch to meet a need that no
    /// executor meets now.
    retry: Time,
    /// The model whose need is the limit.
    by: usize,
}

/// What becomes of an executor that could be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It is kept free until then, for this model.
    Keep { until: Time, by: usize },
    /// The model's batch goes, no longer than this; where that is shorter than it would be, for
    /// another model.
    Run { model: usize, longest: Span, by: Option<usize> },
}

impl Choice {
    /// The model's batch goes, as it is.
    pub(crate) fn run(model: usize) -> Self {
        Self::Run { model, longest: Span::MAX, by: None }
    }
}

impl Scene {
    /// Removes all needs and executors; the batch in question could begin at `begin`.
    pub(crate) fn clear(&mut self, now: Time, begin: Time) {
        (self.now, self.begin) = (now, begin);
        self.needs.clear();
        self.free.clear();
    }

    /// Adds this number of other executors that are idle.
    pub(crate) fn add_idle(&mut self, executors: usize) {
        // More of them than there are needs make no difference.
        self.free.resize(executors.min(self.needs.len()), self.now);
    }

    /// Another executor is free from `at` on.
    pub(crate) fn add_busy(&mut self, at: Time) {
        self.free.push(at.max(self.now));
    }

    /// How many need an executor.
    pub(crate) fn needs(&self) -> usize {
        self.needs.len()
    }

    /// Nothing of the model waits, but requests come.
    pub(crate) fn add_quiet(&mut self, model: usize, need: &Need) {
        // The executor has something to do for it only if a request comes.
        let likely = (need.rate * need.bears.0 as f64).min(1.0);
        self.needs.push(Pressing {
            by: self.now + need.bears,
            model,
            takes: Span((need.takes.0 as f64 * likely) as u64),
            waiting_ns: None,
            bears: need.bears,
            gap_ns: need.gap(),
        });
    }

    /// Requests of the model wait.
    pub(crate) fn add_waiting(&mut self, model: usize, need: &Need, ask: &Ask, table: &Table) {
        let size = (ask.size as usize).min(table.max_batch());
        // Until its latest moment others join, and it has to start so much sooner.
        let joining = (need.rate * (ask.latest - self.now).0 as f64).round() as usize;
        let takes = table.latency((size + joining).min(table.max_batch()));
        self.needs.push(Pressing {
            by: ask.latest - (takes - table.latency(size)),
            model,
            takes,
            waiting_ns: Some(f64::from(ask.size) * need.gap()),
            bears: need.bears,
            gap_ns: need.gap(),
        });
    }

    /// Whether anybody but this model needs an executor.
    pub(crate) fn is_without(&self, model: usize) -> bool {
        self.needs.iter().all(|need| need.model == model)
    }

    /// Decides between the candidates that wait, of which `first` is the most urgent.
    pub(crate) fn choose(&mut self, first: usize, waiting: &[Waiting<'_>]) -> Choice {
        self.needs.sort_unstable_by_key(|need| (need.by, need.model));
        // Later executors than there are needs meet none.
        self.free.sort_unstable();
        self.free.truncate(self.needs.len());
        if let Some(urgent) = waiting.iter().find(|one| one.model == first)
            && self.harm(first, urgent.full()).blocked_ns == 0.0
        {
            return Choice::run(first);
        }
        // Of those that block nobody at some size, the one that uses the executor best.
        let mut best: Option<(f64, &Waiting<'_>, Span, usize)> = None;
        // Of those that block somebody at any size and cannot wait, the most urgent.
        let mut desperate: Option<&Waiting<'_>> = None;
        let mut wake = (Time::NEVER, first);
        for one in waiting {
            let harm = self.harm(one.model, one.full());
            let Some(takes) = self.fitting(one, &harm) else {
                let retry = harm.retry.max(self.now.next());
                if retry != Time::NEVER && retry <= one.ask.latest {
                    wake = wake.min((retry, harm.by));
                } else if desperate.is_none_or(|other| one.ask.urgency < other.ask.urgency) {
                    desperate = Some(one);
                }
                continue;
            };
            let use_made = one.use_made(takes);
            let is_better = best.is_none_or(|(other, before, ..)| {
                use_made > other || use_made == other && one.ask.urgency < before.ask.urgency
            });
            if is_better {
                best = Some((use_made, one, takes, harm.by));
            }
        }
        match (best, desperate) {
            (Some((_, one, longest, by)), _) => {
                let by = (longest < one.full()).then_some(by);
                Choice::Run { model: one.model, longest, by }
            }
            // Somebody waits in vain whatever is done: the batch is as large as it can be.
            (None, Some(one)) => Choice::run(one.model),
            (None, None) if wake.0 != Time::NEVER => Choice::Keep { until: wake.0, by: wake.1 },
            (None, None) => Choice::run(first),
        }
    }

    /// How long the candidate's batch may take; `None`, if it blocks somebody even with one
    /// request.
    fn fitting(&self, one: &Waiting<'_>, harm: &Harm) -> Option<Span> {
        let all = one.size();
        let size = one.table.largest_within_at_most(harm.limit, all);
        if size == 0 {
            return None;
        }
        let takes = one.table.latency(size);
        if size < all {
            // Those that are left behind go after the others. If they are late then, the lesser
            // harm is done.
            let left = all - size;
            let end = self.begin + takes + harm.work + one.table.latency(left);
            if end > one.ask.due_last && left as f64 * one.need.gap() > harm.blocked_ns {
                return Some(one.full());
            }
        }
        Some(takes)
    }

    /// What a batch of `model` does to others that takes this long.
    fn harm(&mut self, model: usize, takes: Span) -> Harm {
        self.trial.clone_from(&self.free);
        let next_free = self.free.first().copied();
        let mut harm = Harm {
            limit: Span::MAX,
            blocked_ns: 0.0,
            work: Span::ZERO,
            retry: Time::NEVER,
            by: model,
        };
        for need in self.needs.iter().filter(|need| need.model != model) {
            if self.trial.first().is_some_and(|&next| next <= need.by) {
                put_off(&mut self.trial, need.takes);
                continue;
            }
            let limit = need.by - self.begin - harm.work;
            if limit < harm.limit {
                (harm.limit, harm.by) = (limit, need.model);
            }
            let end = self.begin + takes + harm.work;
            if end > need.by {
                let late = (end - need.by).0 as f64;
                harm.blocked_ns +=
                    need.waiting_ns.map_or(late, |waiting| (late + need.gap_ns).min(waiting));
                let near = next_free.map(|next| next - need.bears);
                if let Some(near) =
                    near.filter(|&near| need.waiting_ns.is_none() && near > self.now)
                {
                    harm.retry = harm.retry.min(near);
                }
            }
            harm.work += need.takes;
        }
        harm
    }
}

/// The first of ascending moments is later by `takes`: it moves to where it belongs then.
fn put_off(moments: &mut [Time], takes: Span) {
    let moment = moments[0] + takes;
    let mut at = 0;
    while at + 1 < moments.len() && moments[at + 1] < moment {
        moments[at] = moments[at + 1];
        at += 1;
    }
    moments[at] = moment;
}

impl Waiting<'_> {
    fn size(&self) -> usize {
        (self.ask.size as usize).min(self.table.max_batch())
    }

    /// How long its batch takes with all requests.
    pub(crate) fn full(&self) -> Span {
        self.table.latency(self.size())
    }

    /// How well a batch that takes so long uses the executor, compared with the model's usual ones:
    /// at most one.
    fn use_made(&self, takes: Span) -> f64 {
        let cost = self.table.cost(self.table.largest_within_at_most(takes, self.size()).max(1));
        if self.need.batch == 0.0 {
            return 1.0;
        }
        (self.need.takes.0 as f64 / self.need.batch / cost).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Profile;

    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(value: f64) -> Span {
        Span::from_ms(value)
    }

    /// Batches of `b` take 1 + 0.2 b ms.
    fn long() -> Profile {
        Profile::linear(ms(0.2), ms(1.0), ms(14.0)).unwrap()
    }

    /// Batches of `b` take 0.3 + 0.02 b ms.
    fn short() -> Profile {
        Profile::linear(ms(0.02), ms(0.3), ms(3.0)).unwrap()
    }

    /// The tight model: it has 3 ms.
    fn tight() -> Need {
        Need { bears: ms(2.6), takes: ms(0.4), batch: 5.0, rate: 2.0 / MS as f64 }
    }

    fn slack() -> Need {
        Need { bears: ms(30.0), takes: ms(11.0), batch: 50.0, rate: 2.0 / MS as f64 }
    }

    fn ask(latest: f64, due_last: f64, size: u32) -> Ask {
        let latest = Time::from_ms(latest);
        Ask { urgency: latest, latest, due_last: Time::from_ms(due_last), size }
    }

    /// A scene at 10 ms.
    fn scene() -> Scene {
        let mut scene = Scene::default();
        scene.clear(Time::from_ms(10.0), Time::from_ms(10.0));
        scene
    }

    #[test]
    fn a_long_batch_ends_when_a_tight_request_that_comes_now_must_start() {
        let (long, mut scene) = (long(), scene());
        scene.add_quiet(0, &tight());
        let waiting = [Waiting { model: 1, ask: ask(30.0, 45.0, 50), need: slack(), table: &long }];
        let chosen = scene.choose(1, &waiting);
        let limited = Choice::Run { model: 1, longest: ms(2.6), by: Some(0) };
        assert_eq!(chosen, limited, "eight of fifty");
    }

    #[test]
    fn another_executor_that_is_free_in_time_lets_it_be_as_long_as_it_is() {
        let (long, mut scene) = (long(), scene());
        scene.add_quiet(0, &tight());
        scene.add_idle(0);
        scene.add_busy(Time::from_ms(12.0));
        let waiting = [Waiting { model: 1, ask: ask(30.0, 45.0, 50), need: slack(), table: &long }];
        assert_eq!(scene.choose(1, &waiting), Choice::run(1));
    }

    #[test]
    fn the_tight_model_goes_first_where_it_cannot_bear_an_efficient_batch_of_the_other() {
        let (long, short, mut scene) = (long(), short(), scene());
        let tight_ask = ask(11.3, 12.5, 5);
        scene.add_waiting(0, &tight(), &tight_ask, &short);
        // Its last moment is near, and it would go first by that alone.
        let long_ask = ask(11.0, 45.0, 50);
        scene.add_waiting(1, &slack(), &long_ask, &long);
        let waiting = [
            Waiting { model: 0, ask: tight_ask, need: tight(), table: &short },
            Waiting { model: 1, ask: long_ask, need: slack(), table: &long },
        ];
        assert!(matches!(scene.choose(1, &waiting), Choice::Run { model: 0, .. }));
    }

    #[test]
    fn the_last_executor_is_kept_until_another_is_near_its_end() {
        let (mut scene, slow) = (scene(), Profile::linear(ms(0.2), ms(4.0), ms(14.0)).unwrap());
        scene.add_quiet(0, &tight());
        scene.add_idle(0);
        scene.add_busy(Time::from_ms(15.0));
        let waiting = [Waiting { model: 1, ask: ask(30.0, 45.0, 9), need: slack(), table: &slow }];
        // One request takes 4.2 ms, and the other executor is free in 5: 2.6 ms before that, this
        // one may go.
        assert_eq!(scene.choose(1, &waiting), Choice::Keep { until: Time::from_ms(12.4), by: 0 });
        // Who cannot wait so long goes, and with as many as there are.
        let waiting = [Waiting { model: 1, ask: ask(12.0, 45.0, 9), need: slack(), table: &slow }];
        assert_eq!(scene.choose(1, &waiting), Choice::run(1));
    }

    #[test]
    fn a_burst_that_would_be_late_in_pieces_goes_as_a_whole() {
        let (long, mut scene) = (long(), scene());
        let seldom = Need { rate: 0.01 / MS as f64, ..tight() };
        scene.add_quiet(0, &seldom);
        let burst = Need { rate: 0.01 / MS as f64, batch: 1.0, ..slack() };
        // Twelve take 3.4 ms together. In two batches they are late: all are due at 13.6 ms.
        let waiting = [Waiting { model: 1, ask: ask(10.2, 13.6, 12), need: burst, table: &long }];
        assert_eq!(scene.choose(1, &waiting), Choice::Run { model: 1, longest: ms(3.4), by: None });
    }

    #[test]
    fn a_moment_that_is_put_off_stays_in_order() {
        let mut moments = [1, 5, 9].map(Time);
        put_off(&mut moments, Span(6));
        assert_eq!(moments, [5, 7, 9].map(Time));
        put_off(&mut moments, Span(40));
        assert_eq!(moments, [7, 9, 45].map(Time));
    }
}
