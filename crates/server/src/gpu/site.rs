//! GPUs as they are asked about: which one, how many seats it has, and how it is cut.

use fermata_engine::{Cut, Gpu};

use super::Gpus;

/// A GPU as it is asked about.
pub(crate) struct Site {
    pub(crate) gpu: Gpu,
    pub(crate) seats: usize,
    pub(crate) cut: Cut,
}

impl Site {
    /// Whether the answer is the same for another.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let kind = |site: &Self| (site.gpu.multiprocessors, site.gpu.step, site.seats);
        self.gpu.name == other.gpu.name && kind(self) == kind(other) && self.cut == other.cut
    }
}

impl Gpus {
    /// All GPUs, by number.
    pub(crate) fn sites(&self) -> Vec<Site> {
        let cuts = self.cuts();
        let sites = cuts.gpus.iter().map(|card| Site {
            gpu: card.gpu.clone(),
            seats: card.seats.len(),
            cut: card.cut.clone(),
        });
        sites.collect()
    }

    /// How a GPU is cut.
    pub(crate) fn cut_of(&self, gpu: usize) -> Option<Cut> {
        let cuts = self.cuts();
        cuts.gpus.iter().find(|card| card.gpu.index == gpu).map(|card| card.cut.clone())
    }
}
