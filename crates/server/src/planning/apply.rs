//! Does what a step says, without a failed request: executors come before models do, a model has
//! its new place before its old one is given up, and executors go last.
//!
//! Everything here may wait for an executor or a session, and runs off the way of requests.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fermata_pool::Pool;

use crate::fleet::Fleet;
use crate::served::Served;
use crate::service::Service;

/// How long executors of a pool that goes are waited for where others need them.
const DRAIN_MAX: Duration = Duration::from_secs(2);
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// A step, with the pools and models that it is about. Sizes beyond `pools` are those of new ones.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) pools: Vec<Arc<Pool>>,
    /// Executors that each pool needs before anything moves, and after.
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
    /// How many executors each pool keeps, though it needs fewer.
    pub(super) kept: Vec<usize>,
    /// Who goes where. Nobody is kept by this.
    pub(super) moves: Vec<(Weak<Served>, usize)>,
}

impl Change {
    /// Executors come where there are models already. Where all are in use, others give up what
    /// they do not need.
    pub(super) fn grow(&self, fleet: &Fleet) {
        let there = |at: usize| self.pools.get(at).map_or(0, |pool| pool.executors());
        let needed: usize =
            (0..self.after.len()).map(|at| self.after[at].saturating_sub(there(at))).sum();
        let mut missing = needed.saturating_sub(fleet.free());
        for (pool, &before) in self.pools.iter().zip(&self.before) {
            let spare = pool.executors().saturating_sub(before.max(1)).min(missing);
            if spare > 0 {
                missing -= spare;
                shrink(pool, pool.executors() - spare);
            }
        }
        for (pool, &after) in self.pools.iter().zip(&self.after) {
            grow(fleet, pool, after);
        }
    }

    /// Models move. Returns how many did. Nobody may load or unload models meanwhile.
    pub(super) fn relocate(&mut self, service: &Service) -> usize {
        let fleet = service.fleet();
        for at in self.pools.len()..self.after.len() {
            // Who was to move to a pool that does not come stays where it is; the next plan tries
            // again.
            let executors = self.after[at].min(fleet.free());
            if executors == 0 {
                tracing::warn!("no GPU is free for one more pool");
                break;
            }
            match fleet.open(executors) {
                Ok(pool) => {
                    tracing::info!(pool = pool.name(), executors, "a pool came");
                    self.pools.push(pool);
                }
                Err(error) => {
                    tracing::error!(%error, "a pool cannot be started");
                    break;
                }
            }
        }
        let mut pairs = Vec::new();
        for (served, to) in std::mem::take(&mut self.moves) {
            let (Some(served), Some(pool)) = (served.upgrade(), self.pools.get(to)) else {
                continue;
            };
            match served.moved(pool) {
                Ok(moved) => pairs.push((served, Arc::new(moved))),
                Err(error) => {
                    tracing::error!(model = served.name, pool = pool.name(), %error, "cannot move");
                }
            }
        }
        let moved = service.registry().replace(&pairs);
        for (before, after) in &pairs {
            let (from, to) = (before.pool().name(), after.pool().name());
            tracing::info!(model = before.name, version = before.version, from, to, "moved");
        }
        let served = service.models();
        for pool in &self.pools {
            let empty = !served.iter().any(|served| Arc::ptr_eq(served.pool(), pool));
            if empty && fleet.close(pool) {
                tracing::info!(pool = pool.name(), "a pool goes");
            }
        }
        moved
    }

    /// Executors go that nobody needs, and come where there was no room for them before.
    pub(super) fn settle(self, fleet: &Fleet) {
        let there = fleet.pools();
        let mut small = Vec::new();
        for (at, pool) in self.pools.into_iter().enumerate() {
            if !there.iter().any(|other| Arc::ptr_eq(other, &pool)) {
                continue;
            }
            let after = self.after[at].max(1);
            let kept = self.kept.get(at).copied().unwrap_or(0);
            if pool.executors() > after.max(kept) {
                shrink(&pool, after.max(kept));
            } else if pool.executors() < after {
                small.push((pool, after));
            }
        }
        let missing: usize = small.iter().map(|(pool, after)| after - pool.executors()).sum();
        let mut waited = Duration::ZERO;
        while fleet.free() < missing && fleet.is_any_leaving() && waited < DRAIN_MAX {
            std::thread::sleep(DRAIN_LOOK);
            waited += DRAIN_LOOK;
        }
        for (pool, after) in small {
            grow(fleet, &pool, after);
        }
    }
}

fn grow(fleet: &Fleet, pool: &Arc<Pool>, to: usize) {
    let before = pool.executors();
    let to = to.min(before + fleet.free());
    if to <= before {
        return;
    }
    match pool.grow(to) {
        Ok(came) => tracing::info!(pool = pool.name(), came, executors = before + came, "grew"),
        Err(error) => tracing::error!(pool = pool.name(), %error, "cannot grow"),
    }
}

fn shrink(pool: &Arc<Pool>, to: usize) {
    let left = pool.shrink(to);
    tracing::info!(pool = pool.name(), left, executors = pool.executors(), "shrank");
}
