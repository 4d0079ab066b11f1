//! What all experiments share: how long they may take, and a seat on the GPU with models that are loaded once.

use std::cell::{RefCell, RefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fermata_engine::cuda::{Workers, captured_size};
use fermata_engine::{Cut, Gpu, Seat};
use fermata_onnx::zoo::Net;

use super::args::GpuArgs;
use super::looping::{Enough, Looped, alone};
use super::subject::Subject;
use super::zoo;
use crate::input::InputError;

/// The largest batch that is measured.
pub(super) const BATCH_MAX: usize = 64;
/// The whole suite takes so many minutes with the times that are written here.
const MINUTES: f64 = 9.0;

/// What an experiment is given.
pub(super) struct Rig {
    /// Which GPU.
    pub(super) device: Gpu,
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

/// One seat that has the GPU to itself, with models on it.
pub(super) struct Lab {
    pub(super) gpu: Gpu,
    pub(super) seat: Arc<dyn Seat>,
    subjects: Vec<(Net, Subject)>,
}

impl Rig {
    /// The error says what is missing, if it is the GPU.
    pub(super) fn new(args: &GpuArgs) -> Result<Self, InputError> {
        let minutes = args.minutes;
        if !(0.1..=600.0).contains(&minutes) {
            let reason = format!("{minutes} is not from 0.1 to 600");
            return Err(InputError::Argument { name: "--minutes", reason });
        }
        let quick = if args.suite.quick { 0.3 } else { 1.0 };
        let (workers, device) = crate::gpu::find(args.gpu)?;
        Ok(Self {
            device,
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

    /// The seat, which is started when it is first asked for.
    pub(super) fn lab(&self) -> anyhow::Result<RefMut<'_, Lab>> {
        let mut lab = self.lab.borrow_mut();
        if lab.is_none() {
            let gpu = self.device.clone();
            let seat = self.workers.seat(&gpu)?;
            *lab = Some(Lab { gpu, seat, subjects: Vec::new() });
        }
        Ok(RefMut::map(lab, |lab| lab.as_mut().expect("it was just started")))
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

impl Lab {
    /// A model on the seat, loaded if it is not there.
    pub(super) fn subject(&mut self, rig: &Rig, net: Net) -> anyhow::Result<&mut Subject> {
        if let Some(at) = self.subjects.iter().position(|(known, _)| *known == net) {
            return Ok(&mut self.subjects[at].1);
        }
        let mut loaded = rig.load(std::slice::from_ref(&self.seat), &[net], BATCH_MAX)?;
        let subject = loaded.pop().and_then(|mut one| one.pop()).expect("one was asked for");
        self.subjects.push((net, subject));
        Ok(&mut self.subjects.last_mut().expect("it was just put there").1)
    }

    /// Takes a share of the GPU; all of it for 100.
    pub(super) fn take(&self, percent: u32) -> anyhow::Result<u32> {
        let Gpu { multiprocessors, step, .. } = self.gpu;
        let cut = match percent {
            100 => Cut::whole(multiprocessors),
            percent => Cut::new(&[percent, 100 - percent], multiprocessors, step)?,
        };
        self.seat.set_share(&cut, 0)?;
        Ok(cut.multiprocessors()[0])
    }
}

/// The batch sizes that the engine runs, up to the largest that is measured here.
pub(super) fn sizes() -> Vec<usize> {
    (1..=BATCH_MAX).filter(|&size| captured_size(size, BATCH_MAX) == size).collect()
}

/// How long batches of these sizes take, back to back.
pub(super) fn sweep(
    subject: &mut Subject,
    sizes: &[usize],
    enough: Enough,
) -> anyhow::Result<Vec<Looped>> {
    warm(subject, sizes)?;
    sizes.iter().map(|&size| Ok(alone(subject.side(size), enough)?)).collect()
}

/// Runs each of these sizes twice: the first batches are slow.
pub(super) fn warm(subject: &mut Subject, sizes: &[usize]) -> anyhow::Result<()> {
    let twice = Enough { batches: 2, time: Duration::ZERO, at_most: Duration::MAX };
    sizes.iter().try_for_each(|&size| alone(subject.side(size), twice).map(drop))?;
    Ok(())
}
