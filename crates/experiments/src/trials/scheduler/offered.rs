//! Requests that come whether or not anybody keeps up: Poisson, each for any of a shard's models.

use fermata_core::{KindId, ModelId, Request, RequestId, Span, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

#[derive(Debug)]
pub(super) struct Offered {
    random: Pcg64Mcg,
    /// The mean time between two, in nanoseconds.
    gap: f64,
    /// When the next comes: in fractions of a nanosecond, since many come in each microsecond.
    at: f64,
    next: Time,
    index: u32,
    shards: u32,
    models: u32,
    count: u64,
}

impl Offered {
    /// So many requests a second for the models of one of the shards.
    pub(super) fn new(rate: f64, index: usize, shards: usize, models: usize, seed: u64) -> Self {
        let mut offered = Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            gap: 1e9 / rate,
            at: 0.0,
            next: Time::START,
            index: index as u32,
            shards: shards as u32,
            models: models as u32,
            count: 0,
        };
        offered.draw();
        offered
    }

    /// When the next comes.
    #[inline]
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// Takes the next, which must be answered within `slo`.
    #[inline]
    pub(super) fn take(&mut self, slo: Span) -> (ModelId, Request) {
        let arrival = self.next;
        // The high half of 32 random bits times the number of models is any of them alike.
        let place = (u64::from(self.random.random::<u32>()) * u64::from(self.models)) >> 32;
        let model = ModelId(place as u32 * self.shards + self.index);
        let id = RequestId(self.count * u64::from(self.shards) + u64::from(self.index));
        self.count += 1;
        self.draw();
        (model, Request { deadline: arrival + slo, id, arrival, kind: KindId::default() })
    }

    #[inline]
    fn draw(&mut self) {
        let uniform = 1.0 - self.random.random::<f64>();
        self.at -= self.gap * uniform.ln();
        self.next = Time(self.at as u64);
    }
}
