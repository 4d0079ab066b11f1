//! A GPU that is not there, for tests: batches take what its model says on the share that a seat
//! has, begin ahead, and come back as they were sent. A seat can be told to break, and to refuse.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fermata_core::Span;
use fermata_engine::{
    Cut, DataType, Ended, Engine, EngineError, Gpu, Inputs, Memory, Model, Outputs, Pressure,
    Running, Seat, Session, Signature, Source, TensorSpec,
};

/// A seat on it.
pub(crate) struct EmulatedSeat {
    gpu: Gpu,
    device: Arc<Device>,
    /// It cannot be started again.
    pub(crate) refuses_restart: AtomicBool,
    /// It takes no other share.
    pub(crate) refuses_share: AtomicBool,
    pub(crate) loads: AtomicUsize,
    /// It makes nothing ready.
    pub(crate) refuses_ready: AtomicBool,
    /// What all seats of its GPU were told of shares, in order.
    pub(crate) told: Arc<Mutex<Vec<Asked>>>,
}

/// What a seat was told of a share of so many multiprocessors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Prepare(u32),
    Take(u32),
}

struct Device {
    all: u32,
    state: Mutex<State>,
}

struct State {
    multiprocessors: u32,
    /// How often it was started, which is how old what was loaded there may be; none, if it is
    /// broken.
    life: Option<usize>,
    lives: usize,
    /// When it has done all that was begun.
    free: Instant,
}

impl EmulatedSeat {
    /// `seats` of a GPU of 100 multiprocessors, of which any number is a share.
    pub(crate) fn gpu(index: usize, seats: usize) -> Vec<Arc<Self>> {
        let gpu = Gpu {
            index,
            name: "Emulated".to_owned(),
            memory: 1 << 30,
            multiprocessors: 100,
            step: 1,
        };
        let told: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seat = |_| {
            let state =
                State { multiprocessors: 100, life: Some(0), lives: 1, free: Instant::now() };
            Arc::new(Self {
                gpu: gpu.clone(),
                device: Arc::new(Device { all: 100, state: Mutex::new(state) }),
                refuses_restart: AtomicBool::new(false),
                refuses_share: AtomicBool::new(false),
                loads: AtomicUsize::new(0),
                refuses_ready: AtomicBool::new(false),
                told: told.clone(),
            })
        };
        (0..seats).map(seat).collect()
    }

    /// Whatever runs there is lost.
    pub(crate) fn break_down(&self) {
        self.device.state.lock().unwrap().life = None;
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.device.state.lock().unwrap().multiprocessors
    }
}

fn lost() -> EngineError {
    EngineError::Lost("the worker is gone".to_owned())
}

impl Engine for EmulatedSeat {
    fn name(&self) -> &'static str {
        "emulated-gpu"
    }

    fn device(&self) -> String {
        self.gpu.share_name(self.multiprocessors())
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    /// A file has two numbers: the milliseconds of each request, and of each batch, on a whole GPU.
    fn load(&self, source: &Source) -> Result<Arc<dyn Model>, EngineError> {
        self.loads.fetch_add(1, SeqCst);
        let refuse = |reason: &str| EngineError::Load {
            file: source.file.clone(),
            reason: reason.to_owned(),
        };
        let text = std::fs::read_to_string(&source.file).map_err(|e| refuse(&e.to_string()))?;
        let mut numbers = text.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(alpha)), Some(Ok(beta))) = (numbers.next(), numbers.next()) else {
            return Err(refuse("is no model"));
        };
        let life = self.device.state.lock().unwrap().life.ok_or_else(lost)?;
        let spec = |name: &str| TensorSpec {
            name: name.to_owned(),
            datatype: DataType::Fp32,
            shape: vec![2],
        };
        let signature = Signature {
            max_batch: 4,
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            length: None,
        };
        Ok(Arc::new(Loaded { signature, alpha, beta, life, device: self.device.clone() }))
    }
}

impl Seat for EmulatedSeat {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn prepare_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError> {
        if self.refuses_ready.load(SeqCst) {
            return Err(EngineError::Run("not now".to_owned()));
        }
        self.device.state.lock().unwrap().life.ok_or_else(lost)?;
        self.told.lock().unwrap().push(Asked::Prepare(cut.multiprocessors()[part]));
        Ok(())
    }

    fn set_share(&self, cut: &Cut, part: usize) -> Result<(), EngineError> {
        if self.refuses_share.load(SeqCst) {
            return Err(EngineError::Run("no such share".to_owned()));
        }
        let mut state = self.device.state.lock().unwrap();
        state.life.ok_or_else(lost)?;
        state.multiprocessors = cut.multiprocessors()[part];
        self.told.lock().unwrap().push(Asked::Take(state.multiprocessors));
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.device.state.lock().unwrap().life.is_none()
    }

    fn restart(&self) -> Result<(), EngineError> {
        if self.refuses_restart.load(SeqCst) {
            return Err(EngineError::Library("the driver is gone".to_owned()));
        }
        let mut state = self.device.state.lock().unwrap();
        state.life = Some(state.lives);
        state.lives += 1;
        state.free = Instant::now();
        Ok(())
    }

    fn memory(&self) -> Result<Memory, EngineError> {
        Ok(Memory { used: 1 << 20, total: self.gpu.memory })
    }

    fn press(&self, _: Pressure, _: Duration) -> Result<f64, EngineError> {
        Err(EngineError::Run("is not emulated".to_owned()))
    }
}

struct Loaded {
    signature: Signature,
    alpha: f64,
    beta: f64,
    life: usize,
    device: Arc<Device>,
}

impl Model for Loaded {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, _: &Signature) -> Result<Box<dyn Session>, EngineError> {
        let (alpha, beta, life, device) = (self.alpha, self.beta, self.life, self.device.clone());
        Ok(Box::new(OnSeat { alpha, beta, life, device }))
    }
}

struct OnSeat {
    alpha: f64,
    beta: f64,
    life: usize,
    device: Arc<Device>,
}

struct Begun {
    outputs: Vec<Outputs>,
    took: Duration,
    end: Instant,
    life: usize,
    device: Arc<Device>,
}

impl Session for OnSeat {
    fn run(&mut self, batch: &[Inputs]) -> Result<Vec<Outputs>, EngineError> {
        let running = self.begin(batch).expect("it takes batches ahead")?;
        running.wait().map(|ended| ended.outputs)
    }

    fn begin(&mut self, batch: &[Inputs]) -> Option<Result<Box<dyn Running>, EngineError>> {
        let mut state = self.device.state.lock().unwrap();
        if state.life != Some(self.life) {
            return Some(Err(lost()));
        }
        let share = f64::from(state.multiprocessors) / f64::from(self.device.all);
        let took = (self.beta + self.alpha * batch.len() as f64 / share) * 1e-3;
        let took = Duration::from_secs_f64(took);
        let end = state.free.max(Instant::now()) + took;
        state.free = end;
        let (outputs, life, device) = (batch.to_vec(), self.life, self.device.clone());
        Some(Ok(Box::new(Begun { outputs, took, end, life, device })))
    }
}

impl Running for Begun {
    fn wait(self: Box<Self>) -> Result<Ended, EngineError> {
        loop {
            if self.device.state.lock().unwrap().life != Some(self.life) {
                return Err(lost());
            }
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let took = Span(self.took.as_nanos() as u64);
                return Ok(Ended { outputs: self.outputs, took });
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
    }
}
