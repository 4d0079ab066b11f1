//! What all experiments share: how long they may take, the GPU, and the laboratory.

use std::cell::{RefCell, RefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fermata_dispatch::Network;
use fermata_engine::cuda::Workers;
use fermata_engine::{Gpu, Seat};
use fermata_files::InputError;
use fermata_onnx::zoo::Net;

use super::args::GpuArgs;
use super::lab::Lab;
use super::looping::Enough;
use super::subject::Subject;
use super::zoo;

/// All runs of the suite take about so many minutes together with the times that are written here;
/// what is loaded takes three or four more.
const MINUTES: f64 = 8.0;

/// Finds the GPU with a number, and what starts workers on it.
pub type FindGpu = fn(usize) -> Result<(Arc<Workers>, Gpu), InputError>;

/// What the experiments on a GPU cannot know by themselves.
#[derive(Clone, Copy, Debug)]
pub struct GpuAccess {
    /// The GPUs of this machine.
    pub find: FindGpu,
    /// How far away the server's seats are.
    pub network: Network,
}

/// What an experiment is given.
pub(super) struct Rig {
    /// Which GPU.
    pub(super) device: Gpu,
    /// How far away the seats of a server are.
    pub(super) network: Network,
    /// Where the models are.
    pub(super) models: PathBuf,
    /// Where profiles go.
    pub(super) profiles: PathBuf,
    pub(super) seed: u64,
    /// What times are multiplied by.
    pace: f64,
    /// They remember in which way models run best.
    workers: Arc<Workers>,
    lab: RefCell<Option<Lab>>,
}

impl Rig {
    /// The error says what is missing, if it is the GPU.
    pub(super) fn new(args: &GpuArgs, access: &GpuAccess) -> Result<Self, InputError> {
        let minutes = args.minutes;
        if !(0.1..=600.0).contains(&minutes) {
            let reason = format!("{minutes} is not from 0.1 to 600");
            return Err(InputError::Argument { name: "--minutes", reason });
        }
        let quick = if args.suite.quick { 0.3 } else { 1.0 };
        let (workers, device) = (access.find)(args.gpu)?;
        Ok(Self {
            device,
            network: access.network,
            models: args.models.clone(),
            profiles: args.profiles.clone(),
            seed: args.suite.seed,
            pace: quick * minutes / MINUTES,
            workers,
            lab: RefCell::new(None),
        })
    }

    /// A time, longer or shorter as was asked for.
    pub(super) fn time(&self, milliseconds: f64) -> Duration {
        Duration::from_secs_f64(milliseconds * self.pace / 1e3)
    }

    /// So many of something, more or fewer as was asked for, and at least `least`.
    pub(super) fn count(&self, usual: usize, least: usize) -> usize {
        ((usual as f64 * self.pace.min(1.0)).round() as usize).max(least)
    }

    /// When a measurement of about so long has seen enough.
    pub(super) fn enough(&self, milliseconds: f64) -> Enough {
        let time = self.time(milliseconds);
        Enough { batches: 8, time, at_most: 8 * time }
    }

    /// Workers of this program.
    pub(super) fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// The laboratory, which is opened when it is first asked for.
    pub(super) fn lab(&self) -> anyhow::Result<RefMut<'_, Lab>> {
        let mut lab = self.lab.borrow_mut();
        if lab.is_none() {
            *lab = Some(Lab::new(&self.device, &self.workers, &self.models, self.seed)?);
        }
        Ok(RefMut::map(lab, |lab| lab.as_mut().expect("it was just opened")))
    }

    /// Gives the GPU back, for a server that is to have it alone.
    pub(super) fn release(&self) {
        self.lab.replace(None);
    }

    /// Loads models on several seats at once: by seat, in order.
    pub(super) fn load(
        &self,
        seats: &[Arc<dyn Seat>],
        nets: &[Net],
        batch_max: usize,
    ) -> anyhow::Result<Vec<Vec<Subject>>> {
        let files: Vec<(Net, PathBuf)> = nets
            .iter()
            .map(|&net| Ok((net, zoo::file(&self.models, net)?)))
            .collect::<anyhow::Result<_>>()?;
        let seed = self.seed;
        let load = |seat: &Arc<dyn Seat>| -> anyhow::Result<Vec<Subject>> {
            let one = |(net, file): &(Net, PathBuf)| {
                Subject::load(seat.as_ref(), file, batch_max, seed).with_context(|| net.name())
            };
            files.iter().map(one).collect()
        };
        thread::scope(|scope| {
            let threads: Vec<_> = seats.iter().map(|seat| scope.spawn(|| load(seat))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("loading does not panic")
            };
            threads.into_iter().map(join).collect()
        })
    }
}
