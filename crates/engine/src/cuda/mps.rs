//! NVIDIA's multi-process service: with it, workers of one GPU run at the same time; without, they take turns.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The service, for our own workers only: other programs on the machine do not see it. It ends with this value.
#[derive(Debug)]
pub(super) struct Mps {
    folder: PathBuf,
}

const CONTROL: &str = "nvidia-cuda-mps-control";
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOGS: &str = "CUDA_MPS_LOG_DIRECTORY";

impl Mps {
    /// Starts it; the error says what is missing.
    pub(super) fn start() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("fermata-mps-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let service = Self { folder };
        let status = service.control().arg("-d").stdin(Stdio::null()).status();
        let reason = match status {
            Ok(status) if status.success() => return Ok(service),
            Ok(status) => status.to_string(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "it is not installed".to_owned()
            }
            Err(error) => error.to_string(),
        };
        Err(format!("{CONTROL} cannot be started: {reason}"))
    }

    /// Where a worker finds it.
    pub(super) fn tell(&self, worker: &mut Command) {
        worker.env(PIPES, &self.folder);
    }

    fn control(&self) -> Command {
        let mut control = Command::new(CONTROL);
        control.env(PIPES, &self.folder).env(LOGS, &self.folder);
        control.stdout(Stdio::null()).stderr(Stdio::null());
        control
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        let Ok(mut control) = self.control().stdin(Stdio::piped()).spawn() else { return };
        if let Some(mut words) = control.stdin.take() {
            let _ = words.write_all(b"quit -t 1\n");
        }
        let _ = control.wait();
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    // What the service still writes there is of no use to anybody.
    let _ = std::fs::remove_dir_all(folder);
}
