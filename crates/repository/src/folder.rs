//! Paths that stay in a folder, and a folder that goes with its owner.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

/// A path that leads into a folder and not out of it, nor to hidden files. Paths come from
/// configurations and from the network.
pub(crate) fn inside(path: &str) -> Option<PathBuf> {
    let plain = |component: Component<'_>| match component {
        Component::Normal(name) => !name.as_encoded_bytes().starts_with(b"."),
        _ => false,
    };
    let path = Path::new(path);
    let named = path.components().next().is_some() && path.components().all(plain);
    (named && !path.as_os_str().as_encoded_bytes().contains(&0)).then(|| path.to_owned())
}

/// A folder of its own that is removed with its contents when it is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
}

impl TemporaryFolder {
    /// Makes one that nobody else may read.
    pub(crate) fn new() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("fermata-{}-{number}", process::id()));
            // A folder that is there already is somebody else's, or was left behind.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, and the folders on the way to it.
    pub(crate) fn write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let file = self.path.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, data)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // A folder that is left behind harms nobody.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_in_and_not_out() {
        for path in ["model.onnx", "1/model.onnx", "1/model.onnx/data.bin"] {
            assert_eq!(inside(path), Some(PathBuf::from(path)));
        }
        for path in ["", "/etc/passwd", "..", "1/../../x", "./x", ".fermata/x", "1/.x", "a\0b"] {
            assert_eq!(inside(path), None, "{path:?}");
        }
    }

    #[test]
    fn a_temporary_folder_goes_with_its_contents() {
        let folder = TemporaryFolder::new().unwrap();
        folder.write(Path::new("1/model.onnx"), b"x").unwrap();
        let path = folder.path().to_owned();
        assert_eq!(fs::read(path.join("1/model.onnx")).unwrap(), b"x");
        drop(folder);
        assert!(!path.exists());
    }
}
