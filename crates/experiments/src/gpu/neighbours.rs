//! What models on two shares of one GPU do to each other, measured.
//!
//! - *Usage* by proxy: on one half of the GPU the model runs back to back, on the other something
//!   presses on the L2 cache, or on the memory, as hard as it can. Of the bandwidth that the
//!   presser has when it is alone, the part that it loses is what the model takes. How much longer
//!   the model takes meanwhile is its *sensitivity*.
//! - Pairs: two models run back to back beside each other; each is compared with itself alone on
//!   the same share.

use std::collections::BTreeMap;
use std::time::Duration;

use fermata_core::Span;
use fermata_engine::{Cut, EngineError, Pressure, Seat};
use serde::Serialize;

use super::choice::Choice;
use super::looping::{Enough, alone, beside, together};
use super::subject::Subject;

/// Two seats on one GPU, with the same models on both, in the same order.
pub(super) struct Neighbours<'a> {
    pub(super) seats: [&'a dyn Seat; 2],
    pub(super) subjects: [Vec<Subject>; 2],
    /// When a measurement has seen enough.
    pub(super) enough: Enough,
    /// How long to press.
    pub(super) press: Duration,
    /// How long each model takes alone: by seat, share, model and batch.
    known: BTreeMap<(usize, u32, usize, usize), Span>,
}

/// What a model takes of what is shared when it runs on one half of a GPU, and what it bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Taken {
    pub(super) model: usize,
    pub(super) batch: usize,
    /// The parts of the bandwidth that it takes away from a presser on the other half.
    pub(super) l2: f64,
    pub(super) dram: f64,
    /// How many times as long it takes beside one, less one.
    pub(super) bears_l2: f64,
    pub(super) bears_dram: f64,
}

/// Two models that ran side by side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Beside {
    #[serde(flatten)]
    pub(super) choice: Choice,
    /// The median of each, in milliseconds.
    pub(super) alone_ms: [f64; 2],
    pub(super) together_ms: [f64; 2],
}

impl Beside {
    /// How many times as long each took.
    pub(super) fn factors(&self) -> [f64; 2] {
        [0, 1].map(|side| self.together_ms[side] / self.alone_ms[side])
    }
}

impl<'a> Neighbours<'a> {
    pub(super) fn new(
        seats: [&'a dyn Seat; 2],
        subjects: [Vec<Subject>; 2],
        enough: Enough,
        press: Duration,
    ) -> Self {
        Self { seats, subjects, enough, press, known: BTreeMap::new() }
    }

    /// What each model takes at each batch size.
    pub(super) fn usages(
        &mut self,
        batches: &[usize],
        done: &dyn Fn(),
    ) -> Result<Vec<Taken>, EngineError> {
        self.cut([50, 50])?;
        let presser = self.seats[1];
        let free = [Pressure::L2, Pressure::Dram].map(|what| presser.press(what, self.press));
        let [free_l2, free_dram] = free;
        let free = [(Pressure::L2, free_l2?), (Pressure::Dram, free_dram?)];
        let mut taken = Vec::new();
        for model in 0..self.subjects[0].len() {
            for &batch in batches {
                let alone = self.alone(0, 50, model, batch)?;
                let mut found = [(0.0, 0.0); 2];
                for ((what, free), found) in free.into_iter().zip(&mut found) {
                    // Long enough for some batches, however long they are.
                    let time = self.press.max(Duration::from_nanos(4 * alone.0));
                    let side = self.subjects[0][model].side(batch);
                    let (looped, got) = beside(side, || presser.press(what, time))?;
                    let part = (1.0 - got / free.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
                    let longer = match looped.took.is_empty() {
                        true => 0.0,
                        false => looped.median().0 as f64 / alone.0 as f64 - 1.0,
                    };
                    *found = (part, longer.max(0.0));
                }
                let [(l2, bears_l2), (dram, bears_dram)] = found;
                taken.push(Taken { model, batch, l2, dram, bears_l2, bears_dram });
                done();
            }
        }
        Ok(taken)
    }

    /// Runs pairs.
    pub(super) fn pairs(
        &mut self,
        chosen: &[Choice],
        done: &dyn Fn(),
    ) -> Result<Vec<Beside>, EngineError> {
        let mut pairs = Vec::with_capacity(chosen.len());
        for &choice in chosen {
            let Choice { models, batches, percents } = choice;
            self.cut(percents)?;
            let mut alone = [Span::ZERO; 2];
            for (side, alone) in alone.iter_mut().enumerate() {
                *alone = self.alone(side, percents[side], models[side], batches[side])?;
            }
            let [first, second] = &mut self.subjects;
            let sides = [first[models[0]].side(batches[0]), second[models[1]].side(batches[1])];
            let looped = together(sides, self.enough)?;
            let together_ms = looped.map(|looped| looped.median().as_ms());
            pairs.push(Beside { choice, alone_ms: alone.map(|span| span.as_ms()), together_ms });
            done();
        }
        Ok(pairs)
    }

    /// Gives each seat its share.
    fn cut(&self, percents: [u32; 2]) -> Result<(), EngineError> {
        let gpu = self.seats[0].gpu();
        let cut = Cut::new(&percents, gpu.multiprocessors, gpu.step)
            .map_err(|error| EngineError::Run(error.to_string()))?;
        (0..2).try_for_each(|part| self.seats[part].set_share(&cut, part))
    }

    /// How long a model takes on its seat while the other is idle, as the GPU is cut now. Measured
    /// once.
    fn alone(
        &mut self,
        seat: usize,
        percent: u32,
        model: usize,
        batch: usize,
    ) -> Result<Span, EngineError> {
        let key = (seat, percent, model, batch);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let looped = alone(self.subjects[seat][model].side(batch), self.enough)?;
        let median = looped.median().max(Span(1));
        self.known.insert(key, median);
        Ok(median)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::gpu::choice::choose;
    use crate::gpu::fake::{COEFFICIENTS, FakeSeat, seats};
    use crate::gpu::fit;

    const FORMULAS: [&str; 4] = ["100-50-40-10", "20-5-5-30", "300-100-60-60", "50-200-10-0"];

    const ENOUGH: Enough =
        Enough { batches: 20, time: Duration::ZERO, at_most: Duration::from_secs(10) };

    fn neighbours(seats: &[FakeSeat]) -> Neighbours<'_> {
        let subjects = [0, 1].map(|seat| {
            let load =
                |formula: &&str| Subject::load(&seats[seat], Path::new(formula), 32, 1).unwrap();
            FORMULAS.iter().map(load).collect()
        });
        Neighbours::new([&seats[0], &seats[1]], subjects, ENOUGH, Duration::from_millis(1))
    }

    #[test]
    fn what_a_model_takes_and_bears_is_found() {
        let seats = seats(2);
        let taken = neighbours(&seats).usages(&[1, 8], &|| ()).unwrap();
        assert_eq!(taken.len(), 8);
        let of = |model, batch| {
            *taken.iter().find(|each| each.model == model && each.batch == batch).unwrap()
        };
        // On a half it uses half as much.
        assert!((of(0, 1).l2 - 0.2).abs() < 1e-9 && (of(0, 8).dram - 0.05).abs() < 1e-9);
        assert!((of(2, 8).l2 - 0.3).abs() < 1e-9 && of(3, 1).dram.abs() < 1e-9);
        // A presser runs no model, so this one bears it well.
        assert_eq!(of(0, 1).bears_l2, 0.0);
    }

    #[test]
    fn factors_are_those_of_models_that_always_run_side_by_side() {
        let seats = seats(2);
        let chosen = choose(4, &[1, 8, 32], &[20, 40, 50], 40, 3);
        let mut neighbours = neighbours(&seats);
        let taken = neighbours.usages(&[1, 8, 32], &|| ()).unwrap();
        let pairs = neighbours.pairs(&chosen, &|| ()).unwrap();
        for pair in &pairs {
            let used = |side: usize| {
                let Choice { models, batches, percents } = pair.choice;
                fit::usage(&taken, models[side], batches[side], percents[side]).unwrap()
            };
            let [first, second] = pair.factors();
            assert!((first - COEFFICIENTS.factor(used(0), used(1))).abs() < 1e-3, "{pair:?}");
            assert!((second - COEFFICIENTS.factor(used(1), used(0))).abs() < 1e-3, "{pair:?}");
        }
        let fitted = fit::learn(4, &taken, &pairs, 1).unwrap();
        assert!(fitted.linear.p95 < 1e-3, "{fitted:?}");
        assert!((fitted.coefficients.other_l2 - COEFFICIENTS.other_l2).abs() < 0.05);
    }
}
