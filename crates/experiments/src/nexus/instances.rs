//! Random problems of packing: models of the A100 zoo at random rates.

use fermata_core::{Profile, Span};
use fermata_plan::{Packer, Session, Turn};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::trials::symphony::zoo_a100;

/// Models that can take turns, with their objectives.
pub(super) struct Models {
    models: Vec<(Profile, Span)>,
}

/// The least and the most that a session asks for, of what a GPU that runs nothing else serves.
const SHARES: std::ops::Range<f64> = 0.05..0.6;

impl Models {
    /// The A100 zoo, its objectives multiplied. Who cannot run batches of one back to back in time
    /// is left out: DenseNet121, at the objectives of the table.
    pub(super) fn new(slo_times: f64) -> Self {
        let zoo = zoo_a100().into_iter().map(|model| model.with_slo(model.slo_ms * slo_times));
        let zoo = zoo.map(|model| (model.profile(), Span::from_ms(model.slo_ms)));
        Self { models: zoo.filter(|(profile, slo)| profile.shortest() * 2 <= *slo).collect() }
    }

    /// So many sessions of random models.
    pub(super) fn packer(&self, sessions: usize, seed: u64) -> Packer<'_> {
        let mut random = Pcg64::seed_from_u64(seed);
        let one = |demand| {
            let (profile, slo) = &self.models[random.random_range(0..self.models.len())];
            let turn = Turn { profile, slo: *slo, rate: 0.0 };
            let idle = Session { demand, turn, memory: 0, workspace: 0 };
            let rate = random.random_range(SHARES) * idle.peak();
            Session { turn: Turn { rate, ..turn }, ..idle }
        };
        Packer { sessions: (0..sessions).map(one).collect(), memory: u64::MAX }
    }
}
