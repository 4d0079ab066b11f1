//! A world small enough to write expected schedules by hand: exact latencies, wakeups on time.

use std::collections::BTreeMap;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, RequestId, Span, Spread, Time};

use crate::event::{Action, Actions, Dispatch, Event, ModelSpec};

/// A dispatcher under a script. What it asks for is noted as one line each, the time in
/// milliseconds first: `6 x0 m0 r1 r2` starts a batch, `4.5 drop r0` drops, `2 preempt x0`
/// preempts.
pub(super) struct Script {
    dispatcher: Box<dyn Dispatch>,
    now: Time,
    requests: u64,
    slos: BTreeMap<u32, Span>,
    /// Each executor's batches, as latency and earliest start, and when the first ends.
    batches: BTreeMap<u32, (Time, Option<(Time, Span)>)>,
    log: Vec<String>,
}

impl Script {
    pub(super) fn new(dispatcher: impl Dispatch + 'static) -> Self {
        Self {
            dispatcher: Box::new(dispatcher),
            now: Time::START,
            requests: 0,
            slos: BTreeMap::new(),
            batches: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Adds a model with `l(b) = alpha b + beta`, all in milliseconds.
    pub(super) fn model(&mut self, id: u32, alpha: f64, beta: f64, slo: f64) -> &mut Self {
        self.model_at_rate(id, alpha, beta, slo, None)
    }

    /// The same, when the mean gap between its requests is known.
    pub(super) fn model_at_rate(
        &mut self,
        id: u32,
        alpha: f64,
        beta: f64,
        slo: f64,
        gap: Option<f64>,
    ) -> &mut Self {
        let [alpha, beta, slo] = [alpha, beta, slo].map(Span::from_ms);
        let spec = ModelSpec::uniform(slo, Profile::linear(alpha, beta, slo).unwrap());
        self.slos.insert(id, slo);
        let gap = gap.map(Span::from_ms);
        self.event(Event::AddModel { model: ModelId(id), spec: Arc::new(spec), gap })
    }

    /// Adds a model whose run time depends on the kind of a request.
    pub(super) fn spread_model(&mut self, id: u32, spread: Spread, slo: f64) -> &mut Self {
        let slo = Span::from_ms(slo);
        let spec = ModelSpec::uniform(slo, Profile::spread_out(Arc::new(spread)));
        self.slos.insert(id, slo);
        self.event(Event::AddModel { model: ModelId(id), spec: Arc::new(spec), gap: None })
    }

    pub(super) fn join(&mut self, id: u32) -> &mut Self {
        self.event(Event::Join { executor: ExecutorId(id), class: ClassId(0) })
    }

    /// Requests arrive at a moment in milliseconds.
    pub(super) fn arrive(&mut self, ms: f64, model: u32, count: usize) -> &mut Self {
        (0..count).for_each(|_| _ = self.arrive_as(ms, model, KindId(0)));
        self
    }

    /// A request of some kind arrives.
    pub(super) fn arrive_as(&mut self, ms: f64, model: u32, kind: KindId) -> &mut Self {
        self.until(ms);
        let request = RequestId(self.requests);
        self.requests += 1;
        let deadline = self.now + self.slos[&model];
        self.event(Event::Arrive { model: ModelId(model), request, deadline, kind })
    }

    /// Anything else happens now.
    pub(super) fn event(&mut self, event: Event) -> &mut Self {
        if let Event::Fail { executor } = event {
            self.batches.remove(&executor.0);
        }
        let mut actions = Actions::default();
        self.dispatcher.handle(self.now, event, &mut actions);
        for action in &actions.list {
            self.perform(action, &actions);
        }
        self
    }

    /// Lets time pass until `ms` milliseconds: executors finish, the dispatcher wakes up.
    pub(super) fn until(&mut self, ms: f64) -> &mut Self {
        let end = Time::from_ms(ms);
        loop {
            let first = self.batches.iter().map(|(&id, &(ends, _))| (ends, id)).min();
            let (done, executor) = first.unwrap_or((Time::NEVER, 0));
            let wakeup = self.dispatcher.next_wakeup();
            if done.min(wakeup) > end {
                self.now = end;
                return self;
            }
            self.now = done.min(wakeup);
            if done <= wakeup {
                let (_, next) = self.batches.remove(&executor).unwrap();
                if let Some((start, latency)) = next {
                    self.batches.insert(executor, (start.max(done) + latency, None));
                }
                self.event(Event::Done { executor: ExecutorId(executor) });
            } else {
                self.event(Event::Wakeup);
                assert!(self.dispatcher.next_wakeup() > self.now, "it wakes up for nothing");
            }
        }
    }

    pub(super) fn next_wakeup(&self) -> Time {
        self.dispatcher.next_wakeup()
    }

    /// What was asked for since the last call.
    #[track_caller]
    pub(super) fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.log, lines);
        self.log.clear();
    }

    /// What was asked for since the last call, as it is.
    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn perform(&mut self, action: &Action, actions: &Actions) {
        let now = self.now.as_ms();
        self.log.push(match *action {
            Action::Drop { request, .. } => format!("{now} drop {}", request.id),
            Action::Limit { .. } => unreachable!("baselines limit nothing"),
            Action::Preempt { executor } => {
                self.batches.remove(&executor.0).expect("only a running batch is preempted");
                format!("{now} preempt {executor}")
            }
            Action::Run { executor, model, start, latency, first, size } => {
                match self.batches.get_mut(&executor.0) {
                    None => _ = self.batches.insert(executor.0, (start + latency, None)),
                    Some((_, next)) => {
                        assert!(next.is_none(), "{executor} was given a third batch");
                        *next = Some((start, latency));
                    }
                }
                let ids = actions.batch(first, size).iter().map(|request| request.id.to_string());
                let ids = ids.collect::<Vec<_>>().join(" ");
                format!("{} {executor} {model} {ids}", start.as_ms())
            }
        });
    }
}
