//! Runs batches of every size and times them.
//!
//! Sizes up to 16 are timed one by one, larger ones on a grid of eight to the octave with straight
//! lines between; all are run at least once, so that none is new to the engine when it is served.
//! The sizes are gone through twice: a neighbour that is busy for a while then spoils at most half
//! of the samples of a size, which leaves its median as it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fermata_core::Span;
use fermata_engine::{DataType, EngineError, Inputs, Session, Signature, Tensor, TensorSpec};

use super::table::{Latency, Measured, Stop};
use super::watch;

/// Each size up to this one is timed.
const EACH_UP_TO: usize = 16;
/// More runs of one size than this tell nothing new.
const RUNS_MAX: usize = 100;
/// Fewer runs than this are no measurement, however long they take.
const RUNS_MIN: usize = 2;
/// Of so many runs the slowest tells nothing by itself.
const FEW: usize = 10;
/// Engines are slow the first time.
const WARM_UPS: usize = 3;
/// With what comes after it, a profile takes ten seconds.
const BUDGET: Duration = Duration::from_secs(8);
/// What 99 of 100 batches do not exceed.
const TAIL: f64 = 0.99;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// About how long it may take. A slow model is then measured for small batches only.
    pub budget: Duration,
    /// The shapes of inputs, without the batch, for those that may have any; 1 along each such axis
    /// otherwise.
    pub shapes: BTreeMap<String, Vec<i64>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { budget: BUDGET, shapes: BTreeMap::new() }
    }
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The size that is measured next.
    pub size: usize,
    /// The largest there may be.
    pub max: usize,
    /// The first time through the sizes, or the second.
    pub pass: usize,
}

/// Measures a model, up to the first batch that takes longer than `limit`. Fails if not even one
/// request can be run.
pub fn measure(
    session: &mut dyn Session,
    signature: &Signature,
    limit: Span,
    options: &Options,
    progress: &mut dyn FnMut(Step),
) -> Result<Measured, EngineError> {
    let began = Instant::now();
    let clock = || Span(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    measure_by(&clock, session, signature, limit, options, progress)
}

/// Measures by any clock.
fn measure_by(
    clock: &dyn Fn() -> Span,
    session: &mut dyn Session,
    signature: &Signature,
    limit: Span,
    options: &Options,
    progress: &mut dyn FnMut(Step),
) -> Result<Measured, EngineError> {
    let max = signature.max_batch.max(1);
    let item = item(signature, &options.shapes).map_err(EngineError::Run)?;
    let budget = Span(u64::try_from(options.budget.as_nanos()).unwrap_or(u64::MAX));
    // Where batches are padded, those of the sizes that are run are timed, and the others take as
    // long as the next.
    let pads = (1..=max).any(|size| session.runs_as(size) != size);
    let mut bench = Bench { clock, session, batch: vec![item; max], deadline: Span::MAX };
    let is_timed = |&size: &usize| match pads {
        true => size == 1 || bench.session.runs_as(size) == size,
        false => is_on_grid(size),
    };
    let sizes: Vec<usize> = (1..=max).filter(|size| *size == max || is_timed(size)).collect();
    for _ in 0..WARM_UPS {
        bench.time(1)?;
    }
    bench.deadline = clock() + budget;

    let mut samples = Samples::default();
    let mut stop = Stop::MaxBatch;
    // Two passes share the budget.
    for (at, &size) in sizes.iter().enumerate() {
        if size > 1 && bench.is_over() {
            stop = Stop::Time;
            break;
        }
        progress(Step { size, max, pass: 1 });
        let visits = 2 * sizes.len() - at;
        match bench.visit(size, visits, samples.by_size.entry(size).or_default()) {
            Ok(()) => {}
            Err(error) if size == 1 => return Err(error),
            Err(error) => {
                samples.by_size.remove(&size);
                stop = Stop::Failed(error.to_string());
                break;
            }
        }
        if samples.median(size) > limit {
            stop = Stop::Limit;
            break;
        }
    }
    let again: Vec<usize> = samples.by_size.keys().copied().collect();
    for (at, &size) in again.iter().enumerate() {
        if bench.is_over() {
            break;
        }
        progress(Step { size, max, pass: 2 });
        let visits = again.len() - at;
        bench.visit(size, visits, samples.by_size.entry(size).or_default())?;
    }
    let mut measured = Measured { batches: samples.table(pads), stop, limit };
    measured.end_at(limit);
    // What lies between the timed sizes is run once, and what lies behind the last of them may
    // fail.
    let between: Vec<usize> =
        (1..=max).filter(|size| !samples.by_size.contains_key(size)).collect();
    for size in between {
        let behind = size > measured.batches.len();
        if behind && !matches!(measured.stop, Stop::Failed(_)) {
            break;
        }
        match bench.time(size) {
            Ok(_) if behind => measured.batches.push(samples.beyond(size)),
            Ok(_) => {}
            Err(error) => {
                measured.stop = Stop::Failed(error.to_string());
                measured.batches.truncate(size - 1);
                break;
            }
        }
        if behind {
            measured.end_at(limit);
        }
    }
    Ok(measured)
}

/// Runs every size up to `sizes` once, so that none is new to the engine when it is served.
pub fn warm(
    session: &mut dyn Session,
    signature: &Signature,
    sizes: usize,
    shapes: &BTreeMap<String, Vec<i64>>,
) -> Result<(), EngineError> {
    let sizes = sizes.clamp(1, signature.max_batch.max(1));
    let batch = vec![item(signature, shapes).map_err(EngineError::Run)?; sizes];
    (1..=sizes).try_for_each(|size| match session.is_warm(size) {
        true => Ok(()),
        false => session.run(&batch[..size]).map(drop),
    })
}

/// Whether a size is timed: each of the first, then eight to the octave.
fn is_on_grid(size: usize) -> bool {
    size <= EACH_UP_TO || size.is_multiple_of(1 << (size.ilog2() - 3))
}

/// A session and something to run on it.
struct Bench<'a> {
    clock: &'a dyn Fn() -> Span,
    session: &'a mut dyn Session,
    batch: Vec<Inputs>,
    /// When all should be done.
    deadline: Span,
}

impl Bench<'_> {
    fn is_over(&self) -> bool {
        (self.clock)() >= self.deadline
    }

    fn time(&mut self, size: usize) -> Result<Span, EngineError> {
        watch::time(self.session, &self.batch[..size], self.clock)
    }

    /// Times one size as often as its share of the time allows, of which `visits` are still to
    /// come.
    fn visit(
        &mut self,
        size: usize,
        visits: usize,
        samples: &mut Vec<Span>,
    ) -> Result<(), EngineError> {
        let began = (self.clock)();
        self.time(size)?;
        let begin = (self.clock)();
        samples.push(self.time(size)?);
        // To compile for a size may take seconds. That is no reason to serve smaller batches only.
        let second = (self.clock)() - begin;
        self.deadline += (begin - began) - second;
        let share = Span((self.deadline - begin).0 / visits as u64);
        for run in 1..RUNS_MAX / 2 {
            if run >= RUNS_MIN && (self.clock)() >= begin + share {
                break;
            }
            samples.push(self.time(size)?);
        }
        Ok(())
    }
}

/// The times of the runs of each size.
#[derive(Default)]
struct Samples {
    by_size: BTreeMap<usize, Vec<Span>>,
}

impl Samples {
    fn median(&self, size: usize) -> Span {
        let mut sorted = self.by_size[&size].clone();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    }

    /// How much longer than the median the tail is, as a ratio. Jitter is of the machine rather
    /// than of a size: sizes up to an octave away are taken together, since one alone has too few
    /// runs to know what one in a hundred does.
    fn jitter(&self, size: usize) -> f64 {
        let near = self.by_size.range(size.div_ceil(2)..=size.saturating_mul(2));
        let mut ratios: Vec<f64> = near
            .flat_map(|(&size, runs)| {
                let median = self.median(size).0.max(1) as f64;
                runs.iter().map(move |run| run.0 as f64 / median)
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let rank = (TAIL * ratios.len() as f64).ceil() as usize;
        // One outlier among a few runs is not one in a hundred.
        let highest = if ratios.len() >= FEW { ratios.len() - 1 } else { ratios.len() };
        ratios[rank.clamp(1, highest) - 1].max(1.0)
    }

    fn of(&self, size: usize) -> Latency {
        let runs = &self.by_size[&size];
        let sum: u128 = runs.iter().map(|run| u128::from(run.0)).sum();
        let mean = Span((sum / runs.len() as u128) as u64);
        let tail = Span((self.median(size).0 as f64 * self.jitter(size)).round() as u64);
        Latency { mean, median: self.median(size), tail: tail.max(mean), runs: runs.len() }
    }

    /// Every size up to the largest that was timed: in straight lines between those, or as long as
    /// the next of them.
    fn table(&self, pads: bool) -> Vec<Latency> {
        let timed: Vec<(usize, Latency)> =
            self.by_size.keys().map(|&size| (size, self.of(size))).collect();
        let mut table = vec![timed[0].1];
        for pair in timed.windows(2) {
            let [(low, from), (high, to)] = [pair[0], pair[1]];
            let between = |size: usize, from: Span, to: Span| {
                let share = if pads { 1.0 } else { (size - low) as f64 / (high - low) as f64 };
                Span((from.0 as f64 + (to.0 as f64 - from.0 as f64) * share).round() as u64)
            };
            table.extend((low + 1..high).map(|size| Latency {
                mean: between(size, from.mean, to.mean),
                median: between(size, from.median, to.median),
                tail: between(size, from.tail, to.tail),
                runs: 0,
            }));
            table.push(to);
        }
        table
    }

    /// A size behind the last that was timed, as if each request took as long as in the last.
    fn beyond(&self, size: usize) -> Latency {
        let (&last, _) = self.by_size.last_key_value().expect("the first size was timed");
        let Latency { mean, median, tail, .. } = self.of(last);
        let scale = |span: Span| Span((span.0 as f64 * size as f64 / last as f64).round() as u64);
        Latency { mean: scale(mean), median: scale(median), tail: scale(tail), runs: 0 }
    }
}

/// One request for a model: ones.
pub(super) fn item(
    signature: &Signature,
    shapes: &BTreeMap<String, Vec<i64>>,
) -> Result<Inputs, String> {
    let input = |spec: &TensorSpec| {
        let given = shapes.get(&spec.name).unwrap_or(&spec.shape);
        let axes = given.iter().map(|&axis| if axis == -1 { 1 } else { axis });
        let shape: Vec<i64> =
            (signature.max_batch > 0).then_some(1).into_iter().chain(axes).collect();
        ones(spec.datatype, shape.clone())
            .ok_or_else(|| format!("input '{}' cannot have shape {shape:?}", spec.name))
    };
    signature.inputs.iter().map(input).collect()
}

/// A tensor of ones: lengths and sizes of zero would be no work. Strings are empty.
pub fn ones(datatype: DataType, shape: Vec<i64>) -> Option<Tensor> {
    let one: &[u8] = match datatype {
        DataType::Bool | DataType::Uint8 | DataType::Int8 => &[1],
        DataType::Uint16 | DataType::Int16 => &[1, 0],
        DataType::Uint32 | DataType::Int32 => &[1, 0, 0, 0],
        DataType::Uint64 | DataType::Int64 => &[1, 0, 0, 0, 0, 0, 0, 0],
        DataType::Fp16 => &[0x00, 0x3c],
        DataType::Bf16 => &[0x80, 0x3f],
        DataType::Fp32 => &[0, 0, 0x80, 0x3f],
        DataType::Fp64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        DataType::Bytes => return Tensor::zeros(datatype, shape),
    };
    let elements = Tensor::elements(&shape)?;
    elements.checked_mul(one.len()).filter(|&bytes| bytes <= isize::MAX as usize)?;
    Some(Tensor { datatype, shape, data: Bytes::from(one.repeat(elements)) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use fermata_engine::Outputs;

    use super::super::Planned;
    use super::*;

    /// A device with a clock of its own, on which the `n`-th run of a batch of `b` takes
    /// `latency(n, b)`.
    struct Device<F> {
        time: Arc<AtomicU64>,
        latency: F,
        sizes: Vec<usize>,
    }

    impl<F: FnMut(usize, usize) -> Result<f64, String> + Send> Session for Device<F> {
        fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
            self.sizes.push(batch.len());
            let ms = (self.latency)(self.sizes.len(), batch.len()).map_err(EngineError::Run)?;
            self.time.fetch_add(Span::from_ms(ms).0, Relaxed);
            Ok(Vec::new())
        }
    }

    /// The same, where batches run at the next multiple of so many.
    struct Padding<F>(Device<F>, usize);

    impl<F: FnMut(usize, usize) -> Result<f64, String> + Send> Session for Padding<F> {
        fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
            self.0.run(batch)
        }

        fn runs_as(&self, size: usize) -> usize {
            size.next_multiple_of(self.1)
        }
    }

    struct Outcome {
        measured: Result<Measured, EngineError>,
        sizes: Vec<usize>,
        elapsed: Span,
    }

    fn run(
        max_batch: usize,
        limit_ms: f64,
        latency: impl FnMut(usize, usize) -> Result<f64, String> + Send,
    ) -> Outcome {
        let time = Arc::new(AtomicU64::new(0));
        let mut device = Device { time: Arc::clone(&time), latency, sizes: Vec::new() };
        let signature = Signature {
            max_batch,
            inputs: vec![TensorSpec {
                name: "x".to_owned(),
                datatype: DataType::Fp32,
                shape: vec![-1],
            }],
            outputs: Vec::new(),
            length: None,
        };
        let clock = || Span(time.load(Relaxed));
        let options = Options::default();
        let measured = measure_by(
            &clock,
            &mut device,
            &signature,
            Span::from_ms(limit_ms),
            &options,
            &mut |_| {},
        );
        Outcome { measured, sizes: device.sizes, elapsed: clock() }
    }

    fn resnet50(size: usize) -> f64 {
        1.053 * size as f64 + 5.072
    }

    #[test]
    fn a_linear_model_is_measured_up_to_its_slo() {
        let outcome = run(128, 25.0, |_, size| Ok(resnet50(size)));
        let measured = outcome.measured.unwrap();
        assert_eq!((measured.max_batch(), &measured.stop), (18, &Stop::Limit));
        for (size, latency) in (1..).zip(&measured.batches) {
            assert!((latency.mean.as_ms() - resnet50(size)).abs() < 1e-5);
            assert!((latency.tail.as_ms() - resnet50(size)).abs() < 1e-5);
        }
        assert_eq!(measured.batches[16].runs, 0, "17 is not on the grid");
        assert!(outcome.elapsed <= Span::from_secs(9.0), "{}", outcome.elapsed);
    }

    #[test]
    fn every_size_is_run_though_few_are_timed() {
        let outcome = run(100, 1e9, |_, size| Ok(0.01 * size as f64));
        let measured = outcome.measured.unwrap();
        assert_eq!((measured.max_batch(), measured.stop), (100, Stop::MaxBatch));
        assert!((1..=100).all(|size| outcome.sizes.contains(&size)));
        let timed = measured.batches.iter().filter(|latency| latency.runs > 0).count();
        assert_eq!(timed, 16 + 8 + 8 + 5);
        assert_eq!(measured.batches[98].mean, Span::from_ms(0.99));
    }

    #[test]
    fn slow_models_are_run_seldom_and_quick_ones_often() {
        let slow = run(64, 1000.0, |_, size| Ok(100.0 + size as f64));
        assert!(slow.elapsed <= Span::from_secs(12.0), "{}", slow.elapsed);
        let measured = slow.measured.unwrap();
        assert_eq!(measured.stop, Stop::Time, "it has better things to do");
        assert!(measured.batches[0].runs >= RUNS_MIN && measured.max_batch() > 8);
        let quick = run(8, 10.0, |_, _| Ok(1.0));
        assert_eq!(quick.measured.unwrap().batches[0].runs, 100);
    }

    #[test]
    fn a_model_without_a_batch_axis_has_one_size() {
        let measured = run(0, 10.0, |_, _| Ok(3.0)).measured.unwrap();
        assert_eq!((measured.max_batch(), measured.stop.clone()), (1, Stop::MaxBatch));
        assert_eq!(measured.profile(Planned::Tail).shortest(), Span::from_ms(3.0));
    }

    #[test]
    fn a_model_slower_than_its_slo_is_still_measured_once() {
        let measured = run(8, 2.0, |_, _| Ok(3.0)).measured.unwrap();
        assert_eq!((measured.max_batch(), measured.stop.clone()), (1, Stop::Limit));
        assert_eq!(measured.profile(Planned::Tail).shortest(), Span::from_ms(3.0));
    }

    #[test]
    fn the_profile_has_the_tail_and_forgets_single_outliers() {
        let often = |run: usize, size: usize| {
            Ok(size as f64 * if run.is_multiple_of(20) { 1.5 } else { 1.0 })
        };
        let measured = run(8, 100.0, often).measured.unwrap();
        assert_eq!(measured.profile(Planned::Tail).latency(4), Span::from_ms(6.0));
        assert!(measured.batches[3].mean < Span::from_ms(4.2));
        let once = |run: usize, size: usize| Ok(size as f64 * if run == 30 { 50.0 } else { 1.0 });
        let measured = run(8, 100.0, once).measured.unwrap();
        assert!(measured.profile(Planned::Tail).latency(4) == Span::from_ms(4.0));
        assert!(measured.profile(Planned::Tail).latency(1) < Span::from_ms(1.6));
    }

    #[test]
    fn a_neighbour_that_is_busy_for_a_while_spoils_no_median() {
        let busy = |run: usize, size: usize| {
            Ok(size as f64 * if (100..250).contains(&run) { 3.0 } else { 1.0 })
        };
        let outcome = run(8, 100.0, busy);
        let measured = outcome.measured.unwrap();
        assert_eq!(measured.max_batch(), 8);
        assert!(measured.batches.windows(2).all(|pair| pair[0].mean < pair[1].mean * 3));
    }

    #[test]
    fn a_batch_that_fails_ends_the_table() {
        for broken in [2, 16, 17, 20, 21, 64] {
            let fail = |_, size| if size >= broken { Err("reshape".to_owned()) } else { Ok(1.0) };
            let measured = run(64, 10.0, fail).measured.unwrap();
            assert_eq!(measured.max_batch(), broken - 1);
            assert_eq!(measured.stop, Stop::Failed("reshape".to_owned()));
        }
        let outcome = run(64, 10.0, |_, _| Err("no".to_owned()));
        assert_eq!(outcome.measured.unwrap_err().to_string(), "no");
    }

    #[test]
    fn warming_runs_each_size_once() {
        let mut device =
            Device { time: Arc::default(), latency: |_, _| Ok(1.0), sizes: Vec::new() };
        let signature =
            Signature { max_batch: 5, inputs: Vec::new(), outputs: Vec::new(), length: None };
        warm(&mut device, &signature, 9, &BTreeMap::new()).unwrap();
        assert_eq!(device.sizes, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_grid_has_eight_sizes_to_the_octave() {
        let grid: Vec<usize> = (14..=72).filter(|&size| is_on_grid(size)).collect();
        assert_eq!(
            grid,
            [14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72]
        );
    }

    #[test]
    fn a_batch_that_is_padded_takes_as_long_as_the_size_at_which_it_runs() {
        let time = Arc::new(AtomicU64::new(0));
        // For each of them something has to be compiled, which takes most of the time that there is
        // to measure.
        let mut compiled = std::collections::BTreeSet::new();
        let latency = |_: usize, size: usize| {
            let size = size.next_multiple_of(8);
            Ok(1.0 + size as f64 + if compiled.insert(size) { 4000.0 } else { 0.0 })
        };
        let device = Device { time: Arc::clone(&time), latency, sizes: Vec::new() };
        let inputs =
            vec![TensorSpec { name: "x".to_owned(), datatype: DataType::Fp32, shape: vec![1] }];
        let signature = Signature { max_batch: 64, inputs, outputs: Vec::new(), length: None };
        let clock = || Span(time.load(Relaxed));
        let (limit, options) = (Span::from_ms(1000.0), Options::default());
        let mut padding = Padding(device, 8);
        let measured =
            measure_by(&clock, &mut padding, &signature, limit, &options, &mut |_| {}).unwrap();
        for size in 1..=64_usize {
            let expected = Span::from_ms(1.0 + size.next_multiple_of(8) as f64);
            assert_eq!(measured.batches[size - 1].median, expected, "{size}");
        }
    }

    #[test]
    fn ones_are_ones() {
        let floats = ones(DataType::Fp32, vec![2]).unwrap();
        assert_eq!(&floats.data[..], [1.0_f32.to_le_bytes(), 1.0_f32.to_le_bytes()].concat());
        assert_eq!(&ones(DataType::Fp64, vec![]).unwrap().data[..], 1.0_f64.to_le_bytes());
        for datatype in DataType::ALL {
            assert_eq!(ones(datatype, vec![1, 3]).unwrap().validate(), Ok(()));
            assert_eq!(ones(datatype, vec![i64::MAX, 4]), None);
        }
    }
}
