//! The real binary in a folder of its own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder that is removed with its contents.
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fermata-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The names of the files in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `fermata` in it.
    pub(crate) fn fermata(&self, args: &[&str]) -> Output {
        self.fermata_with(args, &[])
    }

    /// Runs `fermata` in it with environment variables.
    pub(crate) fn fermata_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
        command.current_dir(&self.path).args(args);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FERMATA_")) {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that is left behind harms nobody, and a panic here would hide the test's own.
        let _ = fs::remove_dir_all(&self.path);
    }
}
