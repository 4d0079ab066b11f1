//! Whether what a recording tells can have happened. A dispatcher takes the world's word for it,
//! and panics where that is broken; a file that somebody wrote or cut deserves a message instead.

use std::collections::{HashMap, VecDeque};
use std::mem;

use fermata_core::{ClassId, ExecutorId, ModelId, RequestId, Span, Time};
use fermata_dispatch::{BATCHES_MAX, Event, ModelSpec};

use super::text::Deed;

/// A century, and more: what comes later, or takes longer, is too near to never to be reckoned
/// with.
const LAST: Time = Time(1 << 62);
const LONGEST: Span = Span(1 << 62);
/// More classes than any pool has: a number in a file must not make tables large.
const CLASSES_MAX: usize = 1024;

/// One pool, as far as its recording has told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Check {
    now: Time,
    /// By id: dense, so that no number in a file makes a table larger than the file.
    executors: Vec<Option<Executor>>,
    /// Which are there, by id.
    models: Vec<bool>,
    /// Who is in the system.
    requests: HashMap<RequestId, Request>,
}

#[derive(Clone, Debug, Default)]
struct Executor {
    leaving: bool,
    /// What it runs, and what it was given ahead.
    batches: VecDeque<Vec<RequestId>>,
}

#[derive(Clone, Debug)]
struct Request {
    model: ModelId,
    runs: bool,
}

impl Check {
    /// Notes an event, or says why it cannot have happened.
    pub(crate) fn event(&mut self, time: Time, event: &Event) -> Result<(), String> {
        if time < self.now {
            return Err(format!("the time goes back, from {} to {}", self.now.0, time.0));
        }
        if time > LAST {
            return Err(format!("{} is too late for a time", time.0));
        }
        self.now = time;
        match *event {
            Event::AddModel { model, ref spec, .. } => self.add(model).and(is_finite(spec)),
            Event::Arrive { model, request, .. } => self.arrive(model, request),
            Event::Cancel { model, .. } => self.know(model),
            Event::Profile { model, ref spec } => self.know(model).and(is_finite(spec)),
            Event::Done { executor } => self.done(executor),
            Event::Fail { executor } => self.fail(executor),
            Event::Join { executor, class } => self.join(executor, class),
            Event::Leave { executor } => self.leave(executor),
            Event::RemoveModel { model } => {
                self.know(model)?;
                self.models[model.index()] = false;
                Ok(())
            }
            Event::Late { .. } | Event::Wakeup => Ok(()),
        }
    }

    /// Notes an action, or says why nobody can have asked for it.
    pub(crate) fn action(&mut self, deed: &Deed) -> Result<(), String> {
        match deed {
            Deed::Drop { model, request } => {
                self.waiting(*model, *request)?;
                self.requests.remove(request);
                Ok(())
            }
            Deed::Preempt { executor } => {
                let batch = self.executor(*executor)?.batches.pop_front();
                self.wait_again(batch.ok_or_else(|| runs_nothing(*executor))?);
                Ok(())
            }
            Deed::Run { executor, model, requests } => {
                let state = self.executor(*executor)?;
                if state.leaving {
                    return Err(format!("executor {executor} has left"));
                }
                if state.batches.len() == BATCHES_MAX {
                    return Err(format!("executor {executor} has {BATCHES_MAX} batches already"));
                }
                state.batches.push_back(requests.clone());
                requests.iter().try_for_each(|&request| {
                    self.waiting(*model, request)?.runs = true;
                    Ok(())
                })
            }
        }
    }

    fn add(&mut self, model: ModelId) -> Result<(), String> {
        let there = place(&mut self.models, model.index())
            .ok_or_else(|| format!("model {model} is added out of order"))?;
        match mem::replace(there, true) {
            true => Err(format!("model {model} is there already")),
            false => Ok(()),
        }
    }

    fn know(&self, model: ModelId) -> Result<(), String> {
        match self.models.get(model.index()) {
            Some(true) => Ok(()),
            _ => Err(format!("there is no model {model}")),
        }
    }

    fn arrive(&mut self, model: ModelId, request: RequestId) -> Result<(), String> {
        self.know(model)?;
        match self.requests.insert(request, Request { model, runs: false }) {
            Some(_) => Err(format!("request {request} is there already")),
            None => Ok(()),
        }
    }

    /// A request of this model that waits.
    fn waiting(&mut self, model: ModelId, request: RequestId) -> Result<&mut Request, String> {
        let state = self.requests.get_mut(&request);
        state
            .filter(|state| state.model == model && !state.runs)
            .ok_or_else(|| format!("request {request} does not wait for model {model}"))
    }

    fn join(&mut self, executor: ExecutorId, class: ClassId) -> Result<(), String> {
        if class.index() >= CLASSES_MAX {
            return Err(format!("there is no class {class}: the last is c{}", CLASSES_MAX - 1));
        }
        let place = place(&mut self.executors, executor.index())
            .ok_or_else(|| format!("executor {executor} joins out of order"))?;
        match place.replace(Executor::default()) {
            Some(_) => Err(format!("executor {executor} is there already")),
            None => Ok(()),
        }
    }

    fn leave(&mut self, executor: ExecutorId) -> Result<(), String> {
        let state = self.executor(executor)?;
        if mem::replace(&mut state.leaving, true) {
            return Err(format!("executor {executor} has left"));
        }
        self.see_off(executor);
        Ok(())
    }

    fn fail(&mut self, executor: ExecutorId) -> Result<(), String> {
        let batches = mem::take(&mut self.executor(executor)?.batches);
        self.executors[executor.index()] = None;
        batches.into_iter().for_each(|batch| self.wait_again(batch));
        Ok(())
    }

    fn done(&mut self, executor: ExecutorId) -> Result<(), String> {
        let batch = self.executor(executor)?.batches.pop_front();
        for request in batch.ok_or_else(|| runs_nothing(executor))? {
            self.requests.remove(&request);
        }
        self.see_off(executor);
        Ok(())
    }

    /// An executor that leaves is gone when it has nothing to do.
    fn see_off(&mut self, executor: ExecutorId) {
        self.executors[executor.index()].take_if(|state| state.leaving && state.batches.is_empty());
    }

    fn wait_again(&mut self, batch: Vec<RequestId>) {
        for request in batch {
            if let Some(state) = self.requests.get_mut(&request) {
                state.runs = false;
            }
        }
    }

    fn executor(&mut self, executor: ExecutorId) -> Result<&mut Executor, String> {
        let state = self.executors.get_mut(executor.index()).and_then(Option::as_mut);
        state.ok_or_else(|| format!("there is no executor {executor}"))
    }
}

fn is_finite(spec: &ModelSpec) -> Result<(), String> {
    let longest = spec.profiles.iter().flatten().map(|profile| match profile.spread() {
        // The table has the means: the longest batch of the longest requests must have an end as
        // well.
        Some(spread) => spread.growth().latency(spread.max_batch(), spread.grid().longest()),
        None => profile.latency(profile.max_batch()),
    });
    match longest.chain([spec.slo, spec.data]).find(|&span| span > LONGEST) {
        Some(span) => Err(format!("{} is too long for a time", span.0)),
        None => Ok(()),
    }
}

fn runs_nothing(executor: ExecutorId) -> String {
    format!("executor {executor} runs nothing")
}

/// The place of an id, which is at most one above those before: servers count without gaps.
fn place<T: Default>(table: &mut Vec<T>, at: usize) -> Option<&mut T> {
    if at == table.len() {
        table.push(T::default());
    }
    table.get_mut(at)
}
