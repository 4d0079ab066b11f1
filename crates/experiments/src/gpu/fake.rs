//! A GPU for tests: batches end at once, and what they are said to have taken follows a formula in
//! which neighbours count.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use fermata_core::Span;
use fermata_engine::{
    Cut, DataType, Ended, Engine, EngineError, Gpu, Inputs, Memory, Model, Outputs, Pressure,
    Running, Seat, Session, Signature, Source, TensorSpec,
};
use fermata_plan::shares::{Coefficients, Usage};

/// Bytes a second that a presser gets with all of the GPU.
const BANDWIDTH: f64 = 1e12;
/// A presser goes on until its neighbour has ended so many batches.
const BATCHES: usize = 3;

/// A seat of a fake GPU.
pub(super) struct FakeSeat {
    gpu: Gpu,
    number: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    seats: Mutex<Vec<State>>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// In percent.
    share: f64,
    in_flight: usize,
    /// What runs uses on a whole GPU.
    usage: Option<Usage>,
    ended: usize,
}

/// What a fake model is: its file is called `FIXED-WORK-L2-DRAM`, in microseconds and percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Formula {
    pub(super) fixed_us: f64,
    pub(super) work_us: f64,
    pub(super) usage: Usage,
}

impl Formula {
    fn parse(file: &Path) -> Option<Self> {
        let stem = file.file_name()?.to_str()?;
        let numbers: Result<Vec<f64>, _> = stem.split('-').map(str::parse).collect();
        let &[fixed_us, work_us, l2, dram] = numbers.ok()?.as_slice() else { return None };
        let usage = Usage { l2: l2 / 100.0, dram: dram / 100.0 };
        Some(Self { fixed_us, work_us, usage })
    }

    /// On so many percent, alone.
    pub(super) fn latency(self, batch: usize, percent: f64) -> Span {
        Span::from_ms((self.fixed_us + self.work_us * batch as f64 * 100.0 / percent) / 1e3)
    }
}

/// What neighbours on a fake GPU do to each other.
pub(super) const COEFFICIENTS: Coefficients =
    Coefficients { own_l2: 0.0, other_l2: 0.5, own_dram: 0.0, other_dram: 0.25, constant: 1.0 };

/// A GPU of a hundred multiprocessors, which can be cut one by one, with so many seats.
pub(super) fn seats(count: usize) -> Vec<FakeSeat> {
    let shared = Arc::new(Shared::default());
    let gpu = Gpu {
        index: 0,
        name: "Fake GPU".to_owned(),
        memory: 1 << 30,
        multiprocessors: 100,
        step: 1,
    };
    let seat = |number| FakeSeat { gpu: gpu.clone(), number, shared: shared.clone() };
    let fresh = || State { share: 100.0, ..State::default() };
    shared.lock().extend((0..count).map(|_| fresh()));
    (0..count).map(seat).collect()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.seats.lock().expect("nobody panics with it")
    }
}

impl Engine for FakeSeat {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn device(&self) -> String {
        self.gpu.name.clone()
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn load(&self, source: &Source) -> Result<Arc<dyn Model>, EngineError> {
        let formula = Formula::parse(&source.file).ok_or_else(|| EngineError::Load {
            file: source.file.clone(),
            reason: "is no formula".to_owned(),
        })?;
        let spec = TensorSpec { name: "x".to_owned(), datatype: DataType::Fp32, shape: vec![2] };
        let signature = Signature {
            max_batch: 64,
            inputs: vec![spec.clone()],
            outputs: vec![spec],
            length: None,
        };
        let (number, shared) = (self.number, self.shared.clone());
        Ok(Arc::new(FakeModel { signature, formula, number, shared }))
    }
}

impl Seat for FakeSeat {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn set_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError> {
        self.shared.lock()[self.number].share = f64::from(cut.multiprocessors()[part]);
        Ok(())
    }

    fn is_lost(&self) -> bool {
        false
    }

    fn restart(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        Ok(Memory::default())
    }

    fn press(&self, what: Pressure, _: Duration) -> Result<f64, EngineError> {
        let mut seats = self.shared.lock();
        let others = |seats: &[State]| -> (usize, bool) {
            let others = seats.iter().enumerate().filter(|(at, _)| *at != self.number);
            let runs = others.clone().any(|(_, other)| other.in_flight > 0);
            (others.map(|(_, other)| other.ended).sum(), runs)
        };
        let (before, runs) = others(&seats);
        let taken: f64 = seats
            .iter()
            .enumerate()
            .filter(|(at, other)| *at != self.number && other.in_flight > 0)
            .filter_map(|(_, other)| Some(part(other.usage?, what) * other.share / 100.0))
            .sum();
        while runs && others(&seats).0 < before + BATCHES {
            seats = self.shared.ended.wait(seats).expect("nobody panics with it");
        }
        Ok(BANDWIDTH * seats[self.number].share / 100.0 * (1.0 - taken))
    }
}

fn part(usage: Usage, what: Pressure) -> f64 {
    match what {
        Pressure::L2 => usage.l2,
        Pressure::Dram => usage.dram,
    }
}

struct FakeModel {
    signature: Signature,
    formula: Formula,
    number: usize,
    shared: Arc<Shared>,
}

impl Model for FakeModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: &Signature) -> Result<Box<dyn Session>, EngineError> {
        let (formula, number, shared) = (self.formula, self.number, self.shared.clone());
        Ok(Box::new(FakeSession { formula, number, shared }))
    }
}

struct FakeSession {
    formula: Formula,
    number: usize,
    shared: Arc<Shared>,
}

struct FakeRunning {
    formula: Formula,
    batch: usize,
    number: usize,
    shared: Arc<Shared>,
}

impl Session for FakeSession {
    fn run(&mut self, _: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        Err(EngineError::Run("begin it".to_owned()))
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        let mut seats = self.shared.lock();
        seats[self.number].in_flight += 1;
        seats[self.number].usage = Some(self.formula.usage);
        let (formula, number, shared) = (self.formula, self.number, self.shared.clone());
        Some(Ok(Box::new(FakeRunning { formula, batch: batch.len(), number, shared })))
    }
}

impl Running for FakeRunning {
    fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
        let mut seats = self.shared.lock();
        let percent = seats[self.number].share;
        let own = self.formula.usage.on_share(percent as u32);
        let mut factor = 1.0_f64;
        for (_, other) in seats.iter().enumerate().filter(|(at, _)| *at != self.number) {
            if let Some(usage) = other.usage.filter(|_| other.in_flight > 0) {
                let usage = usage.on_share(other.share as u32);
                factor = factor.max(COEFFICIENTS.factor(own, usage));
            }
        }
        let alone = self.formula.latency(self.batch, percent);
        let own = &mut seats[self.number];
        (own.in_flight, own.ended) = (own.in_flight - 1, own.ended + 1);
        self.shared.ended.notify_all();
        drop(seats);
        // Whoever else has something to do may do it.
        std::thread::yield_now();
        Ok(Ended { outputs: Vec::new(), took: Span((alone.0 as f64 * factor).round() as u64) })
    }
}
