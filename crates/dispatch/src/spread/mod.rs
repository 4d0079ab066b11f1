//! Models whose run time depends on the input: a queue for each kind of request, and the batch that
//! is worth most now.
//!
//! Which requests go together is chosen among whole batches, not request by request: a long one
//! makes all others of its batch late, so that what a request is worth depends on the others in the
//! batch. It is chosen when an executor is granted; until then the candidate says no more than how
//! urgent the model is. `docs/policy.md` derives the rule.

mod choice;
mod outlook;
mod pick;
mod queues;
#[cfg(test)]
mod tests;

use fermata_core::{Request, RequestId, Span, Time};

use self::choice::Moment;
use self::outlook::{GROUPS, Outlook};
use self::queues::Queues;
use crate::event::{ModelSpec, Network};
use crate::lane::Lane;

/// The mean of a model's batch sizes remembers about so many batches.
const USUAL_MEMORY: f32 = 20.0;

/// Those who wait for a model whose run time depends on the input. What every model machine asks of
/// it is marked as cold: other models are asked a hundred times as often, and pay for every
/// instruction in their way.
#[derive(Clone, Debug)]
pub(crate) struct Mixed {
    queues: Queues,
    /// One for each lane of the model.
    outlooks: Box<[Outlook]>,
    /// By place: who has less time left is hopeless, on every class.
    shortest: Box<[Span]>,
    network: Network,
    /// The size of the model's batches of late.
    usual: f32,
}

/// What a model would send, as far as that is known before it is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prospect {
    /// How many could go.
    pub(crate) size: usize,
    /// The earliest moment at which somebody should have started who still can: an average batch of
    /// his kind would then end when he is due.
    pub(crate) latest: Time,
    /// From then on nobody can join without making others late more than seldom.
    pub(crate) frontrun: Time,
}

/// A batch that is to go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) size: usize,
    /// How long it takes on average.
    pub(crate) mean: Span,
}

impl Mixed {
    /// For a model that is spread out on every class on which it runs. Others are planned by their
    /// means, and so are those of which every request takes the same.
    pub(crate) fn new(spec: &ModelSpec, lanes: &[Lane], network: Network) -> Option<Box<Self>> {
        let outlook = |lane: &Lane| {
            let spread = spec.profile(lane.class)?.spread()?;
            (!spread.is_point()).then(|| Outlook::new(spread))
        };
        let outlooks: Option<Box<[Outlook]>> = lanes.iter().map(outlook).collect();
        let outlooks = outlooks?;
        // A kind is the same on every class, or it cannot be queued by kind.
        let kinds = outlooks.first()?.spread().kinds();
        if outlooks.iter().any(|outlook| outlook.spread().kinds() != kinds) {
            return None;
        }
        let least = |place| outlooks.iter().map(|outlook| outlook.shortest(place)).min();
        let shortest = (0..=kinds).map(|place| least(place).unwrap_or(Span::MAX));
        let shortest = shortest.map(|shortest| shortest + network.lead(1)).collect();
        Some(Box::new(Self { queues: Queues::new(kinds), outlooks, shortest, network, usual: 1.0 }))
    }

    #[cold]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, request: Request) {
        self.queues.push(request);
    }

    pub(crate) fn remove(&mut self, key: (Time, RequestId)) -> Option<Request> {
        self.queues.remove(key)
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Request> {
        self.queues.drain()
    }

    /// Whether a request cannot be in time any more, but once in a thousand times.
    #[cold]
    pub(crate) fn is_hopeless(&self, now: Time, request: &Request) -> bool {
        let shortest = self.shortest[self.queues.place(request.kind)];
        now + shortest + self.network.resp > request.deadline
    }

    /// Takes somebody out who is hopeless.
    #[cold]
    pub(crate) fn pop_hopeless(&mut self, now: Time) -> Option<Request> {
        let resp = self.network.resp;
        (0..self.shortest.len()).find_map(|place| {
            let least = now + self.shortest[place] + resp;
            self.queues.pop_if(place, |head| least > head.deadline)
        })
    }

    /// The last moment at which nobody has become hopeless.
    #[cold]
    pub(crate) fn hopeful_until(&self) -> Time {
        let until = |place: usize| {
            let head = self.queues.kind(place).first()?;
            Some(head.deadline - self.network.resp - self.shortest[place])
        };
        (0..self.shortest.len()).filter_map(until).min().unwrap_or(Time::NEVER)
    }

    /// When a request should have started on a lane: an average batch of its kind would then end
    /// when it is due.
    #[inline]
    pub(crate) fn latest(&self, lane: usize, request: &Request) -> Time {
        request.deadline - self.needed(lane, self.queues.place(request.kind))
    }

    /// From the decision about an average batch of a kind until its answers are with their clients.
    #[inline]
    fn needed(&self, lane: usize, place: usize) -> Span {
        let away = self.network.lead(1) + self.network.resp;
        self.outlooks[lane].usually(place, self.usual).max(self.shortest[place]) + away
    }

    /// What a lane would send now, as far as that is known before it is chosen, in a pool of so
    /// many executors.
    pub(crate) fn prospect(&self, lane: usize, now: Time, executors: u64) -> Option<Prospect> {
        let outlook = &self.outlooks[lane];
        let size = self.queues.len().min(outlook.spread().max_batch());
        if size == 0 {
            return None;
        }
        // Who does not go together with others needs a batch besides, and all of them need the same
        // executors.
        let mut work = [Span::ZERO; GROUPS];
        for place in 0..self.shortest.len() {
            let waiting = self.queues.kind(place).len().min(outlook.spread().max_batch());
            if let Some(tail) = outlook.tail(place, waiting.max(1)).filter(|_| waiting > 0) {
                let group = &mut work[outlook.group(place)];
                *group = tail.max(*group);
            }
        }
        let all = work.iter().fold(Span::ZERO, |all, &work| all + work);
        let away = self.network.lead(1) + self.network.resp;
        let (mut latest, mut frontrun) = (Time::NEVER, Time::NEVER);
        for place in 0..self.shortest.len() {
            let (waiting, needed) = (self.queues.kind(place), self.needed(lane, place));
            let gone = waiting.partition_point(|request| request.deadline < now + needed);
            let Some(next) = waiting.get(gone) else { continue };
            latest = latest.min(next.deadline - needed);
            // Were one more of this kind to come, all of them would seldom be late if they went by
            // then.
            let others = Span((all - work[outlook.group(place)]).0 / executors.max(1));
            let full = outlook.tail(place, waiting.len() - gone + 1);
            let last = full.map_or(now, |full| next.deadline - (full + others + away));
            frontrun = frontrun.min(last);
        }
        if latest == Time::NEVER {
            (latest, frontrun) = (self.hopeful_until().max(now), now);
        }
        Some(Prospect { size, latest, frontrun: frontrun.min(latest) })
    }

    /// Moves the batch that is worth most on a lane to `batch`, were it decided at `now` for an
    /// executor that is free at `free_at`.
    pub(crate) fn choose(
        &mut self,
        lane: usize,
        now: Time,
        free_at: Time,
        batch: &mut Vec<Request>,
    ) -> Option<Chosen> {
        let start = (now + self.network.lead(self.usual as usize)).max(free_at);
        let moment = Moment { start, resp: self.network.resp, usual: self.usual };
        let outlook = &self.outlooks[lane];
        let pick = outlook.pick(&self.queues, &moment)?;
        self.queues.take(&pick, outlook.order(), batch);
        self.usual += (pick.size as f32 - self.usual) / USUAL_MEMORY;
        Some(Chosen { size: pick.size, mean: pick.mean })
    }
}
