//! NVIDIA's multi-process service: with it, workers of one GPU run at the same time; without, they take turns.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The service, for our own workers only: other programs on the machine do not see it. It ends with this value.
#[derive(Debug)]
pub(super) struct Mps {
    folder: PathBuf,
}

/// The beginning of the names of their folders; the number of the process follows.
const PREFIX: &str = "fermata-mps-";

const CONTROL: &str = "nvidia-cuda-mps-control";
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOGS: &str = "CUDA_MPS_LOG_DIRECTORY";

impl Mps {
    /// Starts it; the error says what is missing.
    pub(super) fn start() -> Result<Self, String> {
        let all = std::env::temp_dir();
        // Whoever was killed has left theirs running.
        for folder in left_behind(&all) {
            drop(Self { folder });
        }
        let folder = all.join(format!("{PREFIX}{}", std::process::id()));
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

/// The folders of processes that are no more.
fn left_behind(all: &Path) -> Vec<PathBuf> {
    let is_left = |folder: &PathBuf| {
        let name = folder.file_name().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(PREFIX));
        let process = process.and_then(|process| process.parse::<u32>().ok());
        process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists())
    };
    // Where nobody may look, there is nothing to be found.
    let entries = std::fs::read_dir(all).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

fn remove(folder: &Path) {
    // What the service still writes there is of no use to anybody.
    let _ = std::fs::remove_dir_all(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_behind_is_found_and_nothing_else() {
        let all = std::env::temp_dir().join(format!("fermata-mps-test-{}", std::process::id()));
        // Process numbers end far below.
        let dead = all.join(format!("{PREFIX}{}", u32::MAX));
        for folder in [&dead, &all.join(format!("{PREFIX}{}", std::process::id()))] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::create_dir_all(all.join(format!("{PREFIX}other"))).unwrap();
        assert_eq!(left_behind(&all), [dead]);
        remove(&all);
        assert!(left_behind(&all).is_empty());
    }
}
