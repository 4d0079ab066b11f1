//! What the rank thread does, turn by turn.

use fermata_core::{ExecutorId, Span, Time};
use fermata_dispatch::{Hub, News, Signal};

use crate::link::HubEnd;

/// The executors of a pool, as the rank thread sees them.
pub trait Executors {
    /// Appends those that finished a batch since, and when.
    fn finished(&mut self, now: Time, into: &mut Vec<(ExecutorId, Time)>);
    /// A batch was given to an executor.
    fn started(&mut self, executor: ExecutorId, start: Time, latency: Span);
}

/// The hub with its ends of all links.
#[derive(Debug)]
pub struct RankSide {
    hub: Hub,
    /// By shard.
    links: Vec<HubEnd>,
    /// What the shards were told last.
    told: Signal,
    finished: Vec<(ExecutorId, Time)>,
}

impl RankSide {
    /// A hub and its ends of the links, by shard.
    pub fn new(hub: Hub, links: Vec<HubEnd>) -> Self {
        Self { hub, links, told: Signal::default(), finished: Vec::new() }
    }

    /// The hub: for what happens seldom.
    pub fn hub(&mut self) -> &mut Hub {
        &mut self.hub
    }

    /// Takes everything that has come, and promises what can be promised. False, if there was
    /// nothing to do.
    #[inline]
    pub fn turn(&mut self, now: Time, executors: &mut impl Executors) -> bool {
        // Read first and heeded last: a shard tells that a batch started before it gives it away,
        // so that whoever is seen to be done here has a start among the news that are read after.
        executors.finished(now, &mut self.finished);
        let mut busy = !self.finished.is_empty();
        for link in &mut self.links {
            while let Some(news) = link.next_news() {
                busy = true;
                if let News::Started { executor, start, latency, .. } = news {
                    executors.started(executor, start, latency);
                }
                self.hub.hear(now, news);
            }
        }
        for (executor, at) in self.finished.drain(..) {
            self.hub.done(at, executor);
        }
        for link in &mut self.links {
            busy |= link.posts(|model, class, post| self.hub.post(now, model, class, post)) > 0;
        }
        while let Some(promise) = self.hub.next_promise(now) {
            busy = true;
            let shard = promise.grant.model.index() % self.links.len();
            self.links[shard].promise(promise);
        }
        if *self.hub.signal() != self.told {
            busy = true;
            self.told = *self.hub.signal();
            self.links.iter_mut().for_each(|link| link.set_signal(&self.told));
        }
        if busy {
            self.links.iter_mut().for_each(HubEnd::ring);
        }
        busy
    }

    /// When to take a turn, should nothing come before.
    #[inline]
    pub fn next_wakeup(&self) -> Time {
        self.hub.next_wakeup()
    }

    /// Whether anything has come.
    pub fn has_work(&self) -> bool {
        self.links.iter().any(HubEnd::has_work)
    }
}
