//! The model machine where run times depend on the input: it queues and asks for executors as
//! others do; who goes is chosen when one is granted ([`Mixed`](crate::spread::Mixed)).

use fermata_core::{ClassId, Request, Span, Time};

use super::{ModelMachine, Start};
use crate::candidate::Candidate;
use crate::lane::{Arrival, Lane};
use crate::price::Signal;
use crate::rules::Window;
use crate::spread::Prospect;

impl ModelMachine {
    /// Queues a request of a model whose run time depends on the input. Who goes is chosen when an
    /// executor is granted.
    #[cold]
    pub(super) fn arrive_mixed(&mut self, now: Time, request: Request, signal: &Signal) -> Arrival {
        let Some(mixed) = &mut self.mixed else { return Arrival::Unchanged };
        mixed.push(request);
        let is_less_urgent = |(at, lane): (usize, &Lane)| {
            let waits = |one: &&Candidate| one.ready <= now && now <= one.latest;
            let candidate = lane.candidate().filter(waits);
            candidate.is_some_and(|one| one.latest <= mixed.latest(at, &request))
        };
        if self.lanes.iter().enumerate().all(is_less_urgent) {
            return Arrival::Unchanged;
        }
        self.form(now, signal);
        Arrival::Changed
    }

    #[cold]
    pub(super) fn form_mixed(&mut self, now: Time, signal: &Signal) {
        let Some(mixed) = &self.mixed else { return };
        let Window::Priced(_) = self.rules.window else { return };
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            match mixed.prospect(at, now, u64::from(signal.executors)) {
                Some(Prospect { size, latest, frontrun }) => {
                    let window = (frontrun, latest);
                    let ready = self.tuning.ready(size, window, &self.arrivals, signal);
                    let ready = ready.min(latest).max(now);
                    let (size, urgency) = (size as u32, self.tuning.urgency(latest));
                    lane.propose(Candidate { size, ready, latest, due_last: latest, urgency });
                }
                None => lane.clear(),
            }
        }
    }

    #[cold]
    pub(super) fn granted_mixed(
        &mut self,
        now: Time,
        class: ClassId,
        free_at: Time,
        signal: &Signal,
        batch: &mut Vec<Request>,
    ) -> Option<Start> {
        let lane = self.lanes.iter().position(|lane| lane.class == class)?;
        let chosen = self.mixed.as_mut()?.choose(lane, now, free_at, batch)?;
        let start = (now + self.network.lead(chosen.size)).max(free_at);
        self.there_until = self.there_until.max(start + Span(chosen.mean.0 / 2));
        self.note(chosen.size, 0, signal);
        self.form(now, signal);
        Some(Start { start, latency: chosen.mean })
    }
}
