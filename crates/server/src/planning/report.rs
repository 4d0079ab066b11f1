//! What is told of the plan in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use fermata_core::Span;
use fermata_plan::Reason;

/// What planning has done so far, for whoever asks.
#[derive(Debug, Default)]
pub struct PlanHistory {
    plans: AtomicU64,
    moves: AtomicU64,
    last: ArcSwapOption<Report>,
}

/// The last plan.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it was made.
    pub at: SystemTime,
    /// Why.
    pub why: String,
    /// GPUs that it asks for, before limits.
    pub asked: usize,
    /// GPUs that it has.
    pub gpus: usize,
    /// GPUs that there may be.
    pub limit: usize,
    /// No plan has fewer.
    pub lower_bound: usize,
    /// Models that moved.
    pub moved: usize,
    /// Moves that are left for later.
    pub left: usize,
    /// Its pools: name, GPUs, models.
    pub pools: Vec<(String, usize, usize)>,
    /// Models that it does not serve as it should, and why.
    pub infeasible: Vec<(String, String)>,
}

impl PlanHistory {
    /// How many plans were made.
    pub fn plans(&self) -> u64 {
        self.plans.load(Relaxed)
    }

    /// How many models moved.
    pub fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// The last plan, if there was one.
    pub fn last(&self) -> Option<Arc<Report>> {
        self.last.load_full()
    }

    pub(super) fn note(&self, report: Report) {
        self.plans.fetch_add(1, Relaxed);
        self.moves.fetch_add(report.moved as u64, Relaxed);
        self.last.store(Some(Arc::new(report)));
    }
}

/// Why a model cannot be served as it should, with what would help.
pub(super) fn in_words(reason: &Reason) -> String {
    let ms = |span: Span| span.as_ms();
    match reason {
        Reason::NoProfile => "it runs on no GPU that there is".to_owned(),
        Reason::TooTight { slo_min } => {
            format!("its SLO would have to be at least {:.3} ms", ms(*slo_min))
        }
        Reason::TooLarge { memory, most } => {
            let mb = |bytes: u64| bytes.div_ceil(1_000_000);
            format!("it needs {} MB, and a GPU has {} MB", mb(*memory), mb(*most))
        }
        Reason::NoGpu { gpus, .. } => format!("all models together would need {gpus} GPUs"),
    }
}
