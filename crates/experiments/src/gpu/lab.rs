//! Models that have the GPU to themselves, each loaded once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::Context;
use fermata_engine::cuda::Workers;
use fermata_engine::{Cut, Gpu, Seat};
use fermata_onnx::zoo::Net;

use super::subject::{Subject, warm};
use super::zoo;

/// The largest batch that is measured.
pub(super) const BATCH_MAX: usize = 64;
/// Of the sizes that the engine runs, those that are measured.
pub(super) const BATCHES: [usize; 10] = [1, 2, 4, 8, 12, 16, 24, 32, 48, BATCH_MAX];

/// Those of which cuDNN compiles kernels for every batch size, most of a minute in all.
const SLOW: [Net; 2] = [Net::MobileNetV2, Net::Ssd];

/// Seats that have the GPU to themselves by turns, with models on them.
pub(super) struct Lab {
    pub(super) gpu: Gpu,
    workers: Arc<Workers>,
    /// Where the files of models are.
    models: PathBuf,
    seed: u64,
    /// The first is that of all models that were not expected, or are loaded quickly.
    seats: Vec<Arc<dyn Seat>>,
    present: Vec<Present>,
    /// Those that are being loaded, each on a seat of its own: a process compiles one kernel at a
    /// time.
    coming: Vec<(Net, JoinHandle<anyhow::Result<Present>>)>,
}

/// A model of which every size that is measured has run.
pub(super) struct Present {
    net: Net,
    pub(super) subject: Subject,
    /// Seconds from its file until one size ran in the best way, and until all of them had.
    pub(super) loaded_s: f64,
    pub(super) ready_s: f64,
}

impl Lab {
    pub(super) fn new(
        gpu: &Gpu,
        workers: &Arc<Workers>,
        models: &Path,
        seed: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            gpu: gpu.clone(),
            workers: workers.clone(),
            models: models.to_owned(),
            seed,
            seats: vec![workers.seat(gpu)?],
            present: Vec::new(),
            coming: Vec::new(),
        })
    }

    /// Begins to load those of some models that take long.
    pub(super) fn expect(&mut self, nets: &[Net]) -> anyhow::Result<()> {
        for &net in nets.iter().filter(|net| SLOW.contains(net)) {
            let is_here = self.present.iter().any(|present| present.net == net);
            if is_here || self.coming.iter().any(|(coming, _)| *coming == net) {
                continue;
            }
            let (file, seed) = (zoo::file(&self.models, net)?, self.seed);
            let seat = self.workers.seat(&self.gpu)?;
            self.seats.push(seat.clone());
            let load = thread::Builder::new().name(format!("load-{net}"));
            let load = load.spawn(move || Present::load(seat.as_ref(), net, &file, seed))?;
            self.coming.push((net, load));
        }
        Ok(())
    }

    /// A model, loaded if it is not there.
    pub(super) fn present(&mut self, net: Net) -> anyhow::Result<&mut Present> {
        if let Some(at) = self.present.iter().position(|present| present.net == net) {
            return Ok(&mut self.present[at]);
        }
        let coming = self.coming.iter().position(|(coming, _)| *coming == net);
        let present = match coming {
            Some(at) => self.coming.remove(at).1.join().expect("it does not panic"),
            None => {
                let file = zoo::file(&self.models, net)?;
                Present::load(self.seats[0].as_ref(), net, &file, self.seed)
            }
        };
        self.present.push(present?);
        Ok(self.present.last_mut().expect("it was just put there"))
    }

    /// Takes a share of the GPU; all of it for 100. How many multiprocessors that is.
    pub(super) fn take(&self, percent: u32) -> anyhow::Result<u32> {
        let Gpu { multiprocessors, step, .. } = self.gpu;
        let cut = match percent {
            100 => Cut::whole(multiprocessors),
            percent => Cut::new(&[percent, 100 - percent], multiprocessors, step)?,
        };
        self.seats.iter().try_for_each(|seat| seat.set_share(&cut, 0))?;
        Ok(cut.multiprocessors()[0])
    }
}

impl Drop for Lab {
    /// Whoever gives it back wants the GPU for himself.
    fn drop(&mut self) {
        for (_, load) in self.coming.drain(..) {
            // What became of it does not matter any more.
            let _ = load.join();
        }
    }
}

impl Present {
    fn load(seat: &dyn Seat, net: Net, file: &Path, seed: u64) -> anyhow::Result<Self> {
        let began = Instant::now();
        let subject = Subject::load(seat, file, BATCH_MAX, seed);
        let mut subject = subject.with_context(|| net.name())?;
        let loaded_s = began.elapsed().as_secs_f64();
        warm(&mut subject, &BATCHES).with_context(|| net.name())?;
        Ok(Self { net, subject, loaded_s, ready_s: began.elapsed().as_secs_f64() })
    }
}
