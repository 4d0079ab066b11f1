//! An emulated device: a batch takes as long as a profile says, and nothing is computed.
//!
//! If the profile has a spread, each request has a time of its own: the time that it would take
//! alone. An input of the request states it, or each session draws it from the distribution, anew
//! for every request, because a load often repeats one request. The longest request determines the
//! time of a batch.
//!
//! The device sleeps, and spins for some microseconds at the end only, so that one core can emulate
//! hundreds of devices.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fermata_core::{Profile, Span};
use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::thread::be_punctual;
use crate::{
    DataType, EngineError, Inputs, Model, Outputs, Session, Signature, Tensor, TensorSpec,
};

/// A model on an emulated device.
#[derive(Debug)]
pub struct Emulated {
    signature: Signature,
    profile: Profile,
    alone_input: Option<usize>,
    /// How many sessions were made. Each session draws other numbers; a repeated run draws the same
    /// ones.
    sessions: AtomicU64,
}

impl Emulated {
    /// A model with this signature, whose batches take as long as `profile` says.
    pub fn new(signature: Signature, profile: Profile) -> Self {
        Self { signature, profile, alone_input: None, sessions: AtomicU64::new(0) }
    }

    /// The same model, with the input that states how many milliseconds the request takes alone.
    /// The input counts for profiles with a spread only. It is limited to the range of the profile,
    /// or a client could occupy the device for years.
    pub fn with_alone_input(self, input: Option<usize>) -> Self {
        Self { alone_input: input, ..self }
    }
}

impl Model for Emulated {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, signature: &Signature) -> Result<Box<dyn Session>, EngineError> {
        let batched = signature.max_batch > 0;
        let outputs = signature
            .outputs
            .iter()
            .map(|spec| Output::new(spec, batched))
            .collect::<Result<_, _>>()?;
        Ok(Box::new(EmulatedSession {
            outputs,
            profile: self.profile.clone(),
            alone_input: self.alone_input,
            draws: Draws(self.sessions.fetch_add(1, Relaxed) << 32),
            alarm: Alarm::default(),
        }))
    }
}

struct EmulatedSession {
    outputs: Vec<Output>,
    profile: Profile,
    alone_input: Option<usize>,
    draws: Draws,
    alarm: Alarm,
}

impl Session for EmulatedSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let until = now().saturating_add(self.hold(batch)?);
        let outputs = batch
            .iter()
            .map(|inputs| {
                let answers = self.outputs.iter().enumerate();
                answers.map(|(at, output)| output.answer(inputs.get(at))).collect()
            })
            .collect();
        self.alarm.sleep_until(until);
        Ok(outputs)
    }
}

impl EmulatedSession {
    /// Nanoseconds that a batch takes.
    fn hold(&mut self, batch: &[Inputs]) -> Result<u64, EngineError> {
        let size = batch.len();
        let latency = self.profile.latency(size);
        if latency == Span::MAX {
            let largest = self.profile.max_batch();
            return Err(EngineError::Run(format!(
                "a batch of {size}: the profile ends at {largest}"
            )));
        }
        let Some(spread) = self.profile.spread() else { return Ok(latency.0) };
        let grid = spread.grid();
        let (shortest, longest) = (grid.shortest().0 as f32, grid.longest().0 as f32);
        let alone = batch.iter().map(|inputs| match self.alone_input {
            // No number, or NaN, counts as the shortest time.
            Some(at) => inputs.get(at).and_then(first_number).map_or(shortest, |ms| {
                (ms * 1e6).max(f64::from(shortest)).min(f64::from(longest)) as f32
            }),
            None => spread.mixture().quantile(grid, self.draws.next()),
        });
        let alone = alone.fold(shortest, f32::max);
        Ok(spread.growth().latency(size, Span(alone as u64)).0)
    }
}

/// The first element of a tensor of numbers.
fn first_number(tensor: &Tensor) -> Option<f64> {
    let bytes = tensor.data.get(..tensor.datatype.size()?)?;
    match tensor.datatype {
        DataType::Fp32 => Some(f32::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Fp64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        DataType::Int32 => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        DataType::Int64 => Some(i64::from_le_bytes(bytes.try_into().ok()?) as f64),
        _ => None,
    }
}

/// Pseudorandom numbers between 0 and 1, repeatable: SplitMix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The 24 bits that a single holds.
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// The answer in place of one output.
struct Output {
    /// The shape of the output, with the batch.
    shape: Vec<i64>,
    /// The answer if no input fits.
    zeros: Tensor,
}

impl Output {
    fn new(spec: &TensorSpec, batched: bool) -> Result<Self, EngineError> {
        let shape: Vec<i64> = batched.then_some(1).into_iter().chain(spec.shape.clone()).collect();
        let ones = shape.iter().map(|&axis| if axis == -1 { 1 } else { axis }).collect();
        let zeros = Tensor::zeros(spec.datatype, ones).ok_or_else(|| {
            EngineError::Run(format!("output '{}' cannot have shape {shape:?}", spec.name))
        })?;
        Ok(Self { shape, zeros })
    }

    /// The input at the same index, if it fits this output; else zeros.
    fn answer(&self, input: Option<&Tensor>) -> Tensor {
        let fits = |tensor: &&Tensor| {
            tensor.datatype == self.zeros.datatype
                && tensor.shape.len() == self.shape.len()
                && tensor.shape.iter().zip(&self.shape).all(|(&is, &may)| may == -1 || is == may)
        };
        input.filter(fits).unwrap_or(&self.zeros).clone()
    }
}

/// The present time, in nanoseconds of the clock that [`Alarm::sleep_until`] uses.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wakes the thread at a given time, although the machine wakes threads late.
#[derive(Default)]
struct Alarm {
    /// By how many nanoseconds wake-ups are late, or less, in three of four cases. The thread
    /// sleeps for that much less and spins for the remainder.
    late: u64,
}

/// The longest time to spin, however late the machine wakes threads.
const SPIN_MAX: u64 = 100_000;
/// By how much one wake-up changes the estimate.
const LATE_STEP: u64 = 2_000;

impl Alarm {
    fn sleep_until(&mut self, time: u64) {
        let asked = time.saturating_sub(self.late);
        sleep_until(asked);
        // Three steps up and one step down balance where one wake-up in four is later.
        if now().saturating_sub(asked) > self.late {
            self.late = (self.late + 3 * LATE_STEP).min(SPIN_MAX);
        } else {
            self.late = self.late.saturating_sub(LATE_STEP);
        }
        while now() < time {
            std::hint::spin_loop();
        }
    }
}

fn sleep_until(time: u64) {
    // Set before each sleep, because the setting belongs to the thread, and a session may move to
    // another.
    be_punctual();
    let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
    let until = Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use fermata_core::{Growth, Spread};

    use super::*;

    fn spec(name: &str, datatype: DataType, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    fn session(max_batch: usize, outputs: Vec<TensorSpec>) -> Box<dyn Session> {
        let signature = Signature { max_batch, inputs: Vec::new(), outputs, length: None };
        let profile = Profile::from_table([2.0, 3.0].map(Span::from_ms)).unwrap();
        Emulated::new(signature.clone(), profile).session(&signature).unwrap()
    }

    #[test]
    fn inputs_come_back_where_they_fit_and_zeros_elsewhere() {
        let mut session = session(
            2,
            vec![
                spec("same", DataType::Fp32, &[-1]),
                spec("other", DataType::Fp32, &[3]),
                spec("words", DataType::Bytes, &[2, -1]),
            ],
        );
        let input = Tensor {
            datatype: DataType::Fp32,
            shape: vec![1, 2],
            data: vec![1, 2, 3, 4, 5, 6, 7, 8].into(),
        };
        let outputs = session.run(&[vec![input.clone(), input.clone()]]).unwrap().remove(0);
        assert_eq!(outputs[0], input);
        assert_eq!(outputs[0].data.as_ptr(), input.data.as_ptr());
        assert_eq!(outputs[1], Tensor::zeros(DataType::Fp32, vec![1, 3]).unwrap());
        assert_eq!(outputs[2], Tensor::zeros(DataType::Bytes, vec![1, 2, 1]).unwrap());
    }

    #[test]
    fn a_batch_takes_as_long_as_the_profile_says() {
        let mut session = session(2, vec![]);
        for (size, latency) in [(1, 2), (2, 3)] {
            let start = Instant::now();
            assert_eq!(session.run(&vec![vec![]; size]).unwrap().len(), size);
            assert!(start.elapsed() >= Duration::from_millis(latency));
        }
        assert!(session.run(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_batch_beyond_the_profile_fails() {
        let message = session(8, vec![]).run(&vec![vec![]; 3]).unwrap_err().to_string();
        assert_eq!(message, "a batch of 3: the profile ends at 2");
    }

    /// A session whose requests take 10 to 90 ms alone. The tests ask it how long a batch would
    /// take, without running one.
    fn spread_out(alone_input: Option<usize>, seed: u64) -> EmulatedSession {
        let runs = (0..=80).map(|ms| Span::from_ms(f64::from(10 + ms))).collect();
        let growth = Growth { fixed: 1e6, base: 0.5, each: 0.5 };
        let spread = Spread::new(&vec![(1.0, runs)], growth, 4).unwrap();
        EmulatedSession {
            outputs: Vec::new(),
            profile: Profile::spread_out(Arc::new(spread)),
            alone_input,
            draws: Draws(seed << 32),
            alarm: Alarm::default(),
        }
    }

    fn asking(ms: f32) -> Inputs {
        vec![Tensor {
            datatype: DataType::Fp32,
            shape: vec![1],
            data: ms.to_le_bytes().to_vec().into(),
        }]
    }

    #[test]
    fn a_batch_takes_what_its_longest_request_makes_of_it() {
        let mut session = spread_out(Some(0), 0);
        let mut hold = |ms: &[f32]| {
            let batch: Vec<Inputs> = ms.iter().map(|&ms| asking(ms)).collect();
            session.hold(&batch).map(|ns| (ns as f64 / 1e6).round()).map_err(|e| e.to_string())
        };
        assert_eq!(hold(&[20.0]), Ok(21.0));
        assert_eq!(hold(&[20.0, 40.0, 30.0]), Ok(81.0));
        // No client can occupy the device for longer than the profile says, nor for no time.
        assert_eq!(hold(&[1e30]), Ok(91.0));
        assert_eq!(hold(&[f32::INFINITY]), Ok(91.0));
        assert_eq!([hold(&[f32::NAN]), hold(&[-5.0])], [Ok(11.0), Ok(11.0)]);
        assert_eq!(hold(&[1.0; 5]).unwrap_err(), "a batch of 5: the profile ends at 4");
        let whole = Tensor {
            datatype: DataType::Int64,
            shape: vec![1],
            data: vec![30, 0, 0, 0, 0, 0, 0, 0].into(),
        };
        assert_eq!(first_number(&whole), Some(30.0));
        assert_eq!(first_number(&Tensor::zeros(DataType::Fp32, vec![0]).unwrap()), None);
    }

    #[test]
    fn requests_are_drawn_from_the_distribution_again_and_again_the_same() {
        let draw = |seed: u64| -> Vec<u64> {
            let mut session = spread_out(None, seed);
            (0..1000).map(|_| session.hold(&[asking(0.0)]).unwrap()).collect()
        };
        let drawn = draw(1);
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
        let mean = drawn.iter().sum::<u64>() as f64 / 1000.0 / 1e6;
        assert!((mean - 51.0).abs() < 3.0, "{mean}");
        assert!(drawn.iter().all(|&ns| (10_900_000..=91_100_000).contains(&ns)));
    }
}
