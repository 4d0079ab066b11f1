//! What requests of each length take, alone and in batches: for models whose requests have a
//! length.
//!
//! Lengths are doubled until one fails, takes longer than the objective, or is longer than anybody
//! asks for; between them, alone times are measured on a grid of about 30 % steps, gone through
//! twice, and batches of a few lengths, from which their growth is fitted.

use std::collections::BTreeMap;
use std::time::Duration;

use fermata_core::{Growth, Measured as Runs, Span};
use fermata_engine::{EngineError, Inputs, Session, Signature};

use super::measure::item;
use super::watch::{self, Watch};
use crate::kinds::Lengths;

/// Of the time that measuring may take.
const BUDGET: Duration = Duration::from_secs(8);
/// Lengths of the grid are so much apart.
const STEP: f64 = 1.3;
/// Nobody asks for more.
const LENGTH_MAX: usize = 1 << 14;
/// More runs of one length in one pass tell nothing new; fewer are no measurement.
const RUNS_MAX: usize = 20;
const RUNS_MIN: usize = 2;
/// A run that takes longer is not repeated for being the first.
const SLOW: Span = Span(50_000_000);
/// Requests that take less than this part of the longest that can be in time are short.
const SHORT: u64 = 16;
/// From each range of lengths so many are taken, and so many runs of each.
const LENGTHS_OF_RANGE: usize = 8;
const RUNS_OF_LENGTH: usize = 8;

/// What was measured of a model whose requests have a length.
#[derive(Clone, Debug, PartialEq)]
pub struct LengthTable {
    /// By rising length, what requests took alone, run by run. Never empty, and none is without a
    /// run.
    pub alone: Vec<(usize, Vec<Span>)>,
    /// Batches of requests of one length: how many, how long, what they took.
    pub batches: Vec<(usize, usize, Span)>,
    /// The longest that runs, where a longer one failed.
    pub limit: Option<usize>,
    /// The largest batch that ran, where a larger one failed.
    pub batch_limit: Option<usize>,
    /// The objective up to which it was measured.
    pub slo: Span,
}

impl LengthTable {
    /// The ranges of lengths, of which each is a kind.
    pub(crate) fn lengths(&self) -> Lengths {
        let alone = self.alone.iter().map(|(length, runs)| (*length, median(runs))).collect();
        Lengths::new(alone, self.limit).expect("some length was measured")
    }

    /// How batches grow.
    pub fn growth(&self) -> Growth {
        let medians: BTreeMap<usize, Span> =
            self.alone.iter().map(|(length, runs)| (*length, median(runs))).collect();
        let least = least(self.alone.iter().map(|(_, runs)| median(runs)), self.slo);
        let medians: BTreeMap<usize, Span> =
            medians.into_iter().filter(|(_, alone)| *alone >= least).collect();
        let single = medians.values().map(|&alone| (1, alone, alone));
        let several = self
            .batches
            .iter()
            .filter_map(|&(size, length, took)| Some((size, *medians.get(&length)?, took)));
        let all: Vec<_> = single.chain(several).collect();
        // A clock that did not tick: as good as any.
        Growth::fit(&all).unwrap_or(Growth::FREE)
    }

    /// The largest batch that any requests can be in time with, at most `most`.
    pub fn max_batch(&self, most: usize) -> usize {
        let most = most.clamp(1, self.batch_limit.unwrap_or(usize::MAX));
        let (growth, shortest) = (self.growth(), median(&self.alone[0].1));
        let sizes: Vec<usize> = (1..=most).collect();
        sizes.partition_point(|&size| growth.latency(size, shortest) <= self.slo).max(1)
    }

    /// What requests of each range take, as runs: those of lengths in it, each as much above and
    /// below its median as all runs were.
    pub(crate) fn runs(&self, lengths: &Lengths) -> Runs {
        let mut ratios: Vec<f64> = self
            .alone
            .iter()
            .flat_map(|(_, runs)| {
                let median = median(runs).0.max(1) as f64;
                runs.iter().map(move |run| run.0 as f64 / median)
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let quantile = |at: usize| ratios[ratios.len() * (2 * at + 1) / (2 * RUNS_OF_LENGTH)];
        let share = 1.0 / lengths.count() as f32;
        let of_range = |range: std::ops::RangeInclusive<usize>| {
            let (start, wide) = (*range.start(), range.end() - range.start());
            let each = (0..LENGTHS_OF_RANGE)
                .map(|at| lengths.alone(start + wide * at / (LENGTHS_OF_RANGE - 1)));
            let runs = each.flat_map(|alone| {
                (0..RUNS_OF_LENGTH)
                    .map(move |at| Span((alone.0 as f64 * quantile(at)) as u64).max(Span(1)))
            });
            (share, runs.collect())
        };
        lengths.ranges().map(of_range).collect()
    }
}

/// Measures a model whose signature has a length, up to the first that takes longer than `slo`.
/// `shapes` are those of inputs with other free axes. Fails if not even the shortest can be run.
pub(super) fn measure(
    session: &mut dyn Session,
    signature: &Signature,
    slo: Span,
    shapes: &BTreeMap<String, Vec<i64>>,
    watch: Watch,
) -> Result<LengthTable, EngineError> {
    measure_by(&|| Watch::Wall.now(), &|| watch.now(), session, signature, slo, shapes)
}

/// Runs what was measured once more, so that nothing of it is new to the engine when it is served.
pub(super) fn warm(
    session: &mut dyn Session,
    signature: &Signature,
    table: &LengthTable,
    shapes: &BTreeMap<String, Vec<i64>>,
) -> Result<(), EngineError> {
    let still = || Span::ZERO;
    let mut bench = Bench { clock: &still, watch: &still, session, signature, shapes };
    let alone = table.alone.iter().map(|(length, _)| (1, *length));
    let batches = table.batches.iter().map(|&(size, length, _)| (size, length));
    alone.chain(batches).try_for_each(|(size, length)| bench.time(size, length).map(drop))
}

/// Measures by any watch, for as long as any clock allows.
fn measure_by(
    clock: &dyn Fn() -> Span,
    watch: &dyn Fn() -> Span,
    session: &mut dyn Session,
    signature: &Signature,
    slo: Span,
    shapes: &BTreeMap<String, Vec<i64>>,
) -> Result<LengthTable, EngineError> {
    let mut bench = Bench { clock, watch, session, signature, shapes };
    let budget = Span(BUDGET.as_nanos() as u64);
    let (longest, limit) = bench.probe(slo)?;
    let grid = grid(longest);
    let mut alone: Vec<(usize, Vec<Span>)> =
        grid.iter().map(|&length| (length, Vec::new())).collect();
    // Two passes share half of the time: a neighbour that is busy for a while then spoils half of
    // the runs of a length at most.
    let deadline = clock() + Span(budget.0 / 2);
    let visits = 2 * alone.len();
    for visit in 0..visits {
        let at = visit % alone.len();
        let (length, runs) = &mut alone[at];
        if !runs.is_empty() && clock() >= deadline {
            break;
        }
        let share = Span((deadline - clock()).0 / (visits - visit) as u64);
        bench.visit(1, *length, share, runs)?;
    }
    let max_batch = signature.max_batch.max(1);
    let (batches, batch_limit) = bench.batches(&alone, max_batch, slo, Span(budget.0 / 2));
    Ok(LengthTable { alone, batches, limit, batch_limit, slo })
}

/// A session, and requests to run on it.
struct Bench<'a> {
    /// Says how long measuring has taken.
    clock: &'a dyn Fn() -> Span,
    /// Says how long a run takes.
    watch: &'a dyn Fn() -> Span,
    session: &'a mut dyn Session,
    signature: &'a Signature,
    shapes: &'a BTreeMap<String, Vec<i64>>,
}

impl Bench<'_> {
    /// Doubles the length until it fails, takes too long or is too long; the longest that ran, and
    /// whether a longer one failed.
    fn probe(&mut self, slo: Span) -> Result<(usize, Option<usize>), EngineError> {
        let declared = self.signature.length.as_ref().map_or(usize::MAX, |length| length.longest);
        let most = declared.clamp(1, LENGTH_MAX);
        let (mut length, mut ran) = (1, 0);
        loop {
            match self.time(1, length) {
                Ok(took) => {
                    ran = length;
                    // The first run of a shape is slow in every engine.
                    let took = if took < SLOW { self.time(1, length)? } else { took };
                    if took > slo {
                        // About as long as can be in time: the rest is drawn on.
                        let part = (slo.0 as f64 / took.0 as f64).max(0.5);
                        return Ok((((ran as f64 * part) as usize).max(1), None));
                    }
                    if length == most {
                        return Ok((ran, None));
                    }
                    length = (2 * length).min(most);
                }
                Err(error) if ran == 0 => return Err(error),
                Err(_) => break,
            }
        }
        let (mut runs, mut fails) = (ran, length);
        while fails - runs > 1 {
            let middle = usize::midpoint(runs, fails);
            match self.time(1, middle) {
                Ok(_) => runs = middle,
                Err(_) => fails = middle,
            }
        }
        Ok((runs, Some(runs)))
    }

    /// Batches of a few lengths, in sizes that double, as far as they can be in time.
    fn batches(
        &mut self,
        alone: &[(usize, Vec<Span>)],
        max_batch: usize,
        slo: Span,
        budget: Span,
    ) -> (Vec<(usize, usize, Span)>, Option<usize>) {
        let deadline = (self.clock)() + budget;
        let last = alone.len() - 1;
        let least = least(alone.iter().map(|(_, runs)| median(runs)), slo);
        let from = alone.iter().position(|(_, runs)| median(runs) >= least).unwrap_or(last);
        let some = [0, 1, 2, 3].map(|part| &alone[from + (last - from) * part / 3]);
        let mut sizes: Vec<usize> =
            (1..usize::BITS).map(|power| 1 << power).take_while(|&size| size < max_batch).collect();
        if max_batch > 1 {
            sizes.push(max_batch);
        }
        let mut found = Vec::new();
        let visits = sizes.len() * some.len();
        for (at, &size) in sizes.iter().enumerate() {
            for (place, (length, runs)) in some.iter().enumerate() {
                let now = (self.clock)();
                // Batches are seldom slower than one request after the other; those need not be
                // measured that nobody would run.
                if now >= deadline || median(runs).0.saturating_mul(size as u64) > 2 * slo.0 {
                    continue;
                }
                let share = Span((deadline - now).0 / (visits - at * some.len() - place) as u64);
                let mut took = Vec::new();
                if self.visit(size, *length, share, &mut took).is_err() {
                    return (found, Some(sizes[..at].last().copied().unwrap_or(1)));
                }
                found.push((size, *length, median(&took)));
            }
        }
        (found, None)
    }

    /// Times batches of one size and length as often as their share of the time allows.
    fn visit(
        &mut self,
        size: usize,
        length: usize,
        share: Span,
        runs: &mut Vec<Span>,
    ) -> Result<(), EngineError> {
        let batch = vec![self.item(length)?; size];
        let begin = (self.clock)();
        let first = self.time_batch(&batch)?;
        if first > share.max(SLOW) {
            runs.push(first);
            return Ok(());
        }
        for run in 0..RUNS_MAX {
            if run >= RUNS_MIN && (self.clock)() >= begin + share {
                break;
            }
            runs.push(self.time_batch(&batch)?);
        }
        Ok(())
    }

    fn time(&mut self, size: usize, length: usize) -> Result<Span, EngineError> {
        let batch = vec![self.item(length)?; size];
        self.time_batch(&batch)
    }

    fn time_batch(&mut self, batch: &[Inputs]) -> Result<Span, EngineError> {
        watch::time(self.session, batch, self.watch)
    }

    /// One request of a length: ones.
    fn item(&self, length: usize) -> Result<Inputs, EngineError> {
        let axes = self.signature.length.as_ref().map_or(&[][..], |length| &length.inputs);
        let mut shapes = self.shapes.clone();
        for (spec, axis) in self.signature.inputs.iter().zip(axes) {
            let shape = shapes.entry(spec.name.clone()).or_insert_with(|| spec.shape.clone());
            if let Some(free) = axis.and_then(|axis| shape.get_mut(axis)) {
                *free = length as i64;
            }
        }
        item(self.signature, &shapes).map_err(EngineError::Run)
    }
}

/// The shortest alone time of interest for how batches grow: what every run costs, however short,
/// weighs on short ones, and they are so cheap that it matters little what is thought of their
/// batches.
fn least(alone: impl Iterator<Item = Span>, slo: Span) -> Span {
    let longest = alone.filter(|&alone| alone <= slo).max();
    Span(longest.map_or(0, |longest| longest.0 / SHORT))
}

/// Lengths from one to the longest, closer where they are long.
fn grid(longest: usize) -> Vec<usize> {
    let mut grid = vec![longest];
    let mut next = longest as f64;
    while next > 1.0 {
        next = (next / STEP).min(next - 1.0);
        grid.push((next.round() as usize).max(1));
    }
    grid.dedup();
    grid.reverse();
    grid
}

fn median(runs: &[Span]) -> Span {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(Span(1)).max(Span(1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use fermata_core::{KindId, Spread};
    use fermata_engine::{DataType, Length, Outputs, TensorSpec};

    use super::*;

    /// A device with a clock of its own, on which a batch of `k` whose length is `l` takes what
    /// `latency` says, in milliseconds.
    struct Device<F> {
        time: Arc<AtomicU64>,
        latency: F,
    }

    impl<F: FnMut(usize, usize) -> Option<f64> + Send> Session for Device<F> {
        fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
            let length = batch[0][0].shape[1] as usize;
            let ms = (self.latency)(batch.len(), length);
            let ms = ms.ok_or_else(|| EngineError::Run("too long".to_owned()))?;
            self.time.fetch_add(Span::from_ms(ms).0, Relaxed);
            Ok(Vec::new())
        }
    }

    fn run(
        longest: usize,
        slo_ms: f64,
        latency: impl FnMut(usize, usize) -> Option<f64> + Send,
    ) -> (Result<LengthTable, EngineError>, Span) {
        let time = Arc::new(AtomicU64::new(0));
        let mut device = Device { time: time.clone(), latency };
        let ids = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: DataType::Int64,
            shape: vec![-1],
        };
        let signature = Signature {
            max_batch: 16,
            inputs: vec![ids("ids"), ids("mask")],
            outputs: Vec::new(),
            length: Some(Length {
                inputs: vec![Some(0), Some(0)],
                outputs: Vec::new(),
                longest,
                padding: None,
            }),
        };
        let clock = || Span(time.load(Relaxed));
        let slo = Span::from_ms(slo_ms);
        let table = measure_by(&clock, &clock, &mut device, &signature, slo, &BTreeMap::new());
        (table, clock())
    }

    fn encoder(size: usize, length: usize) -> f64 {
        0.2 + (0.4 + 0.6 * size as f64) * (0.1 * length as f64 + 1e-4 * (length * length) as f64)
    }

    #[test]
    fn a_model_is_measured_as_far_as_it_can_be_in_time() {
        let (table, elapsed) = run(usize::MAX, 100.0, |size, length| Some(encoder(size, length)));
        let table = table.unwrap();
        assert!(elapsed < Span::from_secs(12.0), "{elapsed}");
        let (longest, runs) = table.alone.last().unwrap();
        assert_eq!((*longest, table.limit, table.batch_limit), (512, None, None));
        assert!(runs.iter().all(|run| (run.as_ms() - encoder(1, 512)).abs() < 1e-3));
        let lengths = table.lengths();
        assert!((16..=32).contains(&lengths.count()), "{}", lengths.count());
        let growth = table.growth();
        for (size, length) in [(1, 100), (8, 60), (4, 400), (16, 100)] {
            let said = growth.latency(size, Span::from_ms(encoder(1, length))).as_ms();
            assert!((said / encoder(size, length) - 1.0).abs() < 0.1, "{size} {length}: {said}");
        }
        assert_eq!(table.max_batch(16), 16);
        let runs = table.runs(&lengths);
        let spread = Spread::new(&runs, growth, 16).unwrap();
        let at = |length: usize| {
            let range = lengths.ranges().position(|range| range.contains(&length)).unwrap();
            f64::from(spread.mean(KindId(range as u16))) / 1e6
        };
        assert!((at(300) / encoder(1, 300) - 1.0).abs() < 0.06, "{}", at(300));
    }

    #[test]
    fn the_longest_that_runs_is_found() {
        let (table, _) =
            run(usize::MAX, 1e6, |size, length| (length <= 300).then(|| encoder(size, length)));
        let table = table.unwrap();
        assert_eq!((table.limit, table.alone.last().unwrap().0), (Some(300), 300));
        let (table, _) = run(40, 1e6, |size, length| {
            assert!(length <= 40, "longer ones are refused");
            Some(encoder(size, length))
        });
        assert_eq!(table.unwrap().alone.last().unwrap().0, 40);
        let (table, _) = run(usize::MAX, 1e6, |_, _| None);
        assert_eq!(table.unwrap_err().to_string(), "too long");
    }

    #[test]
    fn batches_that_fail_are_not_run() {
        let (table, _) = run(64, 1e6, |size, length| (size < 8).then(|| encoder(size, length)));
        let table = table.unwrap();
        assert_eq!((table.batch_limit, table.max_batch(16)), (Some(4), 4));
    }

    #[test]
    fn slow_models_take_no_longer_to_measure() {
        let (table, elapsed) =
            run(usize::MAX, 4000.0, |size, length| Some(100.0 * encoder(size, length)));
        assert!(elapsed < Span::from_secs(40.0), "{elapsed}");
        assert!(table.unwrap().alone.len() > 8);
    }

    #[test]
    fn a_clock_that_does_not_tick_does_no_harm() {
        let (table, _) = run(64, 10.0, |_, _| Some(0.0));
        let table = table.unwrap();
        let lengths = table.lengths();
        assert!(Spread::new(&table.runs(&lengths), table.growth(), 4).is_ok());
    }

    #[test]
    fn the_grid_has_every_short_length_and_ends_at_the_longest() {
        assert_eq!(grid(1), [1]);
        assert_eq!(grid(6), [1, 2, 3, 4, 5, 6]);
        let grid = grid(512);
        assert!(grid.len() < 26 && grid.is_sorted() && grid[0] == 1, "{grid:?}");
    }
}
