//! Starts worker processes, and asks one for the GPUs of this machine, so that nothing of CUDA is
//! loaded here.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::link::Link;
use super::mps::Mps;
use super::tunings::Tunings;
use crate::{EngineError, Gpu};

/// Starts workers: the same program as the server, with another subcommand.
pub struct Workers {
    program: PathBuf,
    folders: Vec<PathBuf>,
    mps: Mutex<Option<Mps>>,
    pub(super) tunings: Tunings,
    /// Seats that are open.
    seats: AtomicUsize,
}

/// Where the dynamic linker looks.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Where NVIDIA's packages install CUDA.
const CUDA_FOLDERS: [&str; 2] =
    ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];

/// The hidden subcommand that makes the program a worker.
pub const SUBCOMMAND: &str = "gpu-worker";

impl Workers {
    /// Workers that run this program, and look for ONNX Runtime in these folders.
    pub fn new<P: AsRef<Path>>(
        folders: impl IntoIterator<Item = P>,
    ) -> Result<Arc<Self>, EngineError> {
        let program = std::env::current_exe().map_err(|error| {
            EngineError::Library(format!("the path of this program cannot be found: {error}"))
        })?;
        Ok(Self::of(program, folders))
    }

    /// Workers that run another program, which has the same subcommand.
    pub fn of<P: AsRef<Path>>(program: PathBuf, folders: impl IntoIterator<Item = P>) -> Arc<Self> {
        let folders = folders.into_iter().map(|folder| folder.as_ref().to_owned()).collect();
        Arc::new(Self {
            program,
            folders,
            mps: Mutex::default(),
            tunings: Tunings::default(),
            seats: AtomicUsize::new(0),
        })
    }

    /// The GPUs of this machine; the error says what is missing.
    pub fn gpus(&self) -> Result<Vec<Gpu>, EngineError> {
        let wrong = |reason: String| EngineError::Library(reason);
        let output =
            self.command().arg("--list").stdin(Stdio::null()).stderr(Stdio::piped()).output();
        let output =
            output.map_err(|error| wrong(format!("{}: {error}", self.program.display())))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            let reason = last.map_or_else(|| output.status.to_string(), str::to_owned);
            return Err(wrong(reason.strip_prefix("error: ").unwrap_or(&reason).to_owned()));
        }
        serde_json::from_slice(&output.stdout)
            .map_err(|error| wrong(format!("the list of GPUs cannot be read: {error}")))
    }

    /// From now on, seats on one GPU run at the same time. Without it, the GPU alternates between
    /// them.
    pub fn run_side_by_side(&self) -> Result<(), EngineError> {
        let mut mps = self.mps.lock().unwrap_or_else(PoisonError::into_inner);
        if mps.is_none() {
            *mps = Some(Mps::start().map_err(EngineError::Library)?);
        }
        Ok(())
    }

    /// Counts a seat that was opened.
    pub(super) fn seat_opened(&self) {
        self.seats.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a seat whose worker has ended. The last one stops MPS: this value may live until the
    /// process ends, and would leave the service running.
    pub(super) fn seat_closed(&self) {
        if self.seats.fetch_sub(1, Ordering::SeqCst) == 1 {
            drop(self.mps.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    pub(super) fn spawn(&self, gpu: &Gpu) -> Result<Arc<Link>, EngineError> {
        let wrong = |error: std::io::Error| {
            EngineError::Library(format!("a GPU worker cannot be started: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(wrong)?;
        let mut command = self.command();
        command.arg("--gpu").arg(gpu.index.to_string());
        if let Some(mps) = &*self.mps.lock().unwrap_or_else(PoisonError::into_inner) {
            mps.connect(&mut command);
        }
        let theirs = Stdio::from(std::os::fd::OwnedFd::from(theirs));
        let child = command.stdin(theirs).stdout(Stdio::null()).spawn().map_err(wrong)?;
        Link::new(ours, child).map_err(wrong)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(SUBCOMMAND).env(LIBRARY_PATH, self.library_path());
        for folder in &self.folders {
            command.arg("--library").arg(folder);
        }
        command
    }
}

impl Workers {
    /// The search path of a worker's linker. ONNX Runtime's CUDA provider names the libraries of
    /// CUDA without a path.
    fn library_path(&self) -> OsString {
        let said = std::env::var_os(LIBRARY_PATH).unwrap_or_default();
        let known = CUDA_FOLDERS.into_iter().map(PathBuf::from).filter(|folder| folder.is_dir());
        let all = self.folders.iter().cloned().chain(std::env::split_paths(&said)).chain(known);
        // A folder name with a colon makes the whole path invalid. The linker then reports which
        // library it misses.
        std::env::join_paths(all).unwrap_or(said)
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("program", &self.program).finish_non_exhaustive()
    }
}
