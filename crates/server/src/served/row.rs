//! A row of a request while the pool has it: its inputs until an executor takes them, and then what
//! became of it until the request fetches that.
//!
//! One allocation has all of it, and the pool's ticket points there.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use fermata_core::{Span, Time};
use fermata_engine::{Inputs, Outputs};
use fermata_pool::{Finished, Owner, Refused};

use super::Served;

/// What the pool's ticket of a row points to.
pub(super) struct Row {
    /// It keeps the model's sessions until the row has left.
    served: Arc<Served>,
    arrival: Time,
    /// Held for moments only, by the executor and by the request.
    state: Mutex<State>,
}

struct State {
    /// Empty while an executor has them. A row of a client that went away may still run with its
    /// batch, so they stay until the row has left.
    inputs: Inputs,
    progress: Progress,
}

/// How far a row has come.
enum Progress {
    /// It waits or runs.
    Underway(Option<Waker>),
    /// It has left the pool.
    Left(Result<Ran, Refused>),
    /// The request has its result, or waits for it no longer.
    Closed,
}

/// A row that ran.
pub(super) struct Ran {
    pub(super) outputs: Outputs,
    /// From its arrival until its batch began.
    pub(super) queued: Span,
}

/// Waits for what becomes of a row. Dropping it tells the row that no client waits.
pub(super) struct Waiting(Arc<Row>);

impl Row {
    /// A row that is about to be handed to the pool, and what waits for it.
    pub(super) fn new(served: Arc<Served>, arrival: Time, inputs: Inputs) -> (Arc<Self>, Waiting) {
        let state = Mutex::new(State { inputs, progress: Progress::Underway(None) });
        let row = Arc::new(Self { served, arrival, state });
        let waiting = Waiting(row.clone());
        (row, waiting)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with it")
    }
}

impl Owner for Row {
    fn take_inputs(&self) -> Inputs {
        mem::take(&mut self.state().inputs)
    }

    fn give_back(&self, inputs: Inputs) {
        self.state().inputs = inputs;
    }

    fn is_awaited(&self) -> bool {
        !matches!(self.state().progress, Progress::Closed)
    }

    fn leave(&self, result: Result<Finished, Refused>) {
        let ran = |finished: Finished| Ran {
            outputs: finished.outputs,
            queued: finished.began - self.arrival,
        };
        let mut state = self.state();
        if let Progress::Underway(waker) = &mut state.progress {
            let waker = waker.take();
            state.progress = Progress::Left(result.map(ran));
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn batch_ran(&self, size: usize, took: Span, planned: Span) {
        self.served.metrics.ran(size, took, planned);
    }

    fn batch_failed(&self, size: usize, reason: &str) {
        tracing::warn!(model = self.served.name, size, reason, "a batch failed");
    }
}

impl Future for Waiting {
    type Output = Result<Ran, Refused>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        if let Progress::Underway(waker) = &mut state.progress {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match mem::replace(&mut state.progress, Progress::Closed) {
            Progress::Left(result) => Poll::Ready(result),
            Progress::Underway(_) | Progress::Closed => unreachable!("it is fetched once"),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // What is in it is dropped after the lock.
        let _before = mem::replace(&mut self.0.state().progress, Progress::Closed);
    }
}
