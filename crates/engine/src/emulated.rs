//! A device that is not there: a batch takes as long as a profile says, and nothing is computed.
//!
//! It sleeps, and spins for some microseconds at the end only, so that one core stands for hundreds of devices.

use fermata_core::{Profile, Span};
use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::thread::be_punctual;
use crate::{EngineError, Inputs, Model, Outputs, Session, Signature, Tensor, TensorSpec};

/// A model on an emulated device.
#[derive(Clone, Debug)]
pub struct Emulated {
    signature: Signature,
    profile: Profile,
}

impl Emulated {
    /// A model of this signature, whose batches take as long as `profile` says.
    pub fn new(signature: Signature, profile: Profile) -> Self {
        Self { signature, profile }
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
            alarm: Alarm::default(),
        }))
    }
}

struct EmulatedSession {
    outputs: Vec<Output>,
    profile: Profile,
    alarm: Alarm,
}

impl Session for EmulatedSession {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let until = now().saturating_add(self.hold(batch.len())?);
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
    /// Nanoseconds that a batch of this size takes.
    fn hold(&self, size: usize) -> Result<u64, EngineError> {
        match self.profile.latency(size) {
            Span::MAX => {
                let largest = self.profile.max_batch();
                Err(EngineError::Run(format!("a batch of {size}: the profile ends at {largest}")))
            }
            Span(latency) => Ok(latency),
        }
    }
}

/// What is answered in place of one output.
struct Output {
    /// Its spec, with the batch.
    shape: Vec<i64>,
    /// The answer where no input can be given back.
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

    /// The input in the same place, where it could be this output; else zeros.
    fn answer(&self, input: Option<&Tensor>) -> Tensor {
        let fits = |tensor: &&Tensor| {
            tensor.datatype == self.zeros.datatype
                && tensor.shape.len() == self.shape.len()
                && tensor.shape.iter().zip(&self.shape).all(|(&is, &may)| may == -1 || is == may)
        };
        input.filter(fits).unwrap_or(&self.zeros).clone()
    }
}

/// Nanoseconds of the clock that [`Alarm::sleep_until`] sleeps by.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wakes at a given time, on a machine that wakes threads late.
#[derive(Default)]
struct Alarm {
    /// How late the thread was woken, three times of four at most, in nanoseconds: it asks for so much less sleep, and
    /// spins for what is left.
    late: u64,
}

/// It never spins for longer than this, however late the machine is.
const SPIN_MAX: u64 = 100_000;
/// How fast it learns.
const LATE_STEP: u64 = 2_000;

impl Alarm {
    fn sleep_until(&mut self, time: u64) {
        let asked = time.saturating_sub(self.late);
        sleep_until(asked);
        // A step up for each of three, and down for one, rests where one in four is later.
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
    // Each time: it is a property of the thread, and a session may move.
    be_punctual();
    let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
    let until = Timespec { tv_sec: seconds as i64, tv_nsec: nanoseconds as i64 };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::DataType;

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
}
