//! NVIDIA's multi-process service (MPS). With it, the workers of one GPU run at the same time;
//! without it, the GPU alternates between them.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

/// The service, visible to this server's workers only. It is stopped when this value is dropped.
#[derive(Debug)]
pub(super) struct Mps {
    folder: PathBuf,
    /// Locked for as long as a process uses the service.
    _lock: File,
}

/// Folder names begin with this; the number of the process follows.
const PREFIX: &str = "fermata-mps-";
const LOCK: &str = "lock";

const CONTROL: &str = "nvidia-cuda-mps-control";
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOGS: &str = "CUDA_MPS_LOG_DIRECTORY";

impl Mps {
    /// Starts the service; the error says what is missing.
    pub(super) fn start() -> Result<Self, String> {
        let all = std::env::temp_dir();
        // A killed server leaves its service running.
        drop(left_behind(&all));
        let folder = all.join(format!("{PREFIX}{}", std::process::id()));
        let made = std::fs::create_dir_all(&folder).and_then(|()| {
            let lock = File::create(folder.join(LOCK))?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        let _lock = made.map_err(|error| format!("{}: {error}", folder.display()))?;
        let service = Self { folder, _lock };
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

    /// Tells a worker where the service is.
    pub(super) fn connect(&self, worker: &mut Command) {
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
        // If the control program cannot run, the service is not running either.
        if let Ok(mut control) = self.control().stdin(Stdio::piped()).spawn() {
            if let Some(mut words) = control.stdin.take() {
                let _ = words.write_all(b"quit -t 1\n");
            }
            let _ = control.wait();
        }
        remove(&self.folder);
    }
}

/// The services of processes that have ended: their locks are free. The process number in the name
/// is no proof, because containers may share the folder.
fn left_behind(all: &Path) -> Vec<Mps> {
    let taken_over = |folder: PathBuf| {
        let name = folder.file_name()?.to_str()?;
        let lock = name.starts_with(PREFIX).then(|| File::open(folder.join(LOCK)))?.ok()?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        // Only now, because dropping the value stops the service.
        locked.is_ok().then(|| Mps { folder, _lock: lock })
    };
    // A folder that this process may not read holds no service that it could stop.
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
    entries.filter_map(|entry| taken_over(entry.path())).collect()
}

fn remove(folder: &Path) {
    // An error is of no consequence: the service writes only its own logs there.
    let _ = std::fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_behind_is_found_and_nothing_else() {
        let all = std::env::temp_dir().join(format!("fermata-mps-test-{}", std::process::id()));
        let folder = |name: &str| all.join(format!("{PREFIX}{name}"));
        for name in ["dead", "alive", "other"] {
            std::fs::create_dir_all(folder(name)).unwrap();
        }
        let locks = ["dead", "alive"].map(|name| File::create(folder(name).join(LOCK)).unwrap());
        flock(&locks[1], FlockOperation::NonBlockingLockExclusive).unwrap();
        let left = left_behind(&all);
        assert_eq!(left.iter().map(|left| &left.folder).collect::<Vec<_>>(), [&folder("dead")]);
        // Dropping them stops the services and removes their folders.
        drop(left);
        assert_eq!(
            ["dead", "alive", "other"].map(|name| folder(name).exists()),
            [false, true, true]
        );
        remove(&all);
    }
}
