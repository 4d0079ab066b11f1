//! POSIX shared memory that clients register, to pass tensors without the network.
//!
//! Regions are read and written through their file descriptor, not mapped: a client may shorten its
//! region at any time, which would end a process that has mapped it with a signal, but only fails a
//! read. An input is copied out once, because the client may reuse its region while the request
//! still waits for its batch.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::shm;

use crate::inference::InferError;

/// The regions that are registered, by name.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_name: Mutex<BTreeMap<String, Arc<Region>>>,
}

/// A part of a shared memory object.
#[derive(Debug)]
pub(crate) struct Region {
    /// The name of the object, as for `shm_open`.
    pub(crate) key: String,
    /// Where the region begins in the object.
    pub(crate) offset: u64,
    /// How long the region is.
    pub(crate) byte_size: u64,
    file: File,
}

/// A part of a region that holds one tensor. Keeps the region open.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// The name of the region.
    pub(crate) name: String,
    /// Where the tensor begins in the region.
    pub(crate) offset: u64,
    /// The room for the tensor.
    pub(crate) byte_size: u64,
    region: Arc<Region>,
}

impl Regions {
    /// Opens an object and gives a part of it a name.
    pub(crate) fn register(
        &self,
        name: &str,
        key: &str,
        offset: u64,
        byte_size: u64,
    ) -> Result<(), String> {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if by_name.contains_key(name) {
            return Err(format!("shared memory region '{name}' is registered already"));
        }
        let problem = |reason: &dyn std::fmt::Display| {
            format!("shared memory region '{name}' with key '{key}' cannot be registered: {reason}")
        };
        let object = shm::open(key, shm::OFlags::RDWR, shm::Mode::empty())
            .map_err(|error| problem(&error))?;
        let file = File::from(object);
        let length = file.metadata().map_err(|error| problem(&error))?.len();
        if offset.checked_add(byte_size).is_none_or(|end| end > length) {
            return Err(problem(&format_args!(
                "{byte_size} bytes at offset {offset} reach beyond its {length} bytes"
            )));
        }
        let region = Region { key: key.to_owned(), offset, byte_size, file };
        by_name.insert(name.to_owned(), Arc::new(region));
        Ok(())
    }

    /// Forgets a region; all of them, if `name` is empty. Not an error if there is none of that
    /// name.
    pub(crate) fn unregister(&self, name: &str) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() {
            by_name.clear();
        } else {
            by_name.remove(name);
        }
    }

    /// The region of this name, or all of them, if `name` is empty.
    pub(crate) fn status(&self, name: &str) -> Result<Vec<(String, Arc<Region>)>, String> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if name.is_empty() {
            return Ok(by_name
                .iter()
                .map(|(name, region)| (name.clone(), region.clone()))
                .collect());
        }
        let region = by_name.get(name).ok_or_else(|| unknown(name))?;
        Ok(vec![(name.to_owned(), region.clone())])
    }

    /// A part of a region, in its bounds.
    pub(crate) fn slot(&self, name: &str, offset: u64, byte_size: u64) -> Result<Slot, String> {
        let by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let region = by_name.get(name).ok_or_else(|| unknown(name))?;
        if offset.checked_add(byte_size).is_none_or(|end| end > region.byte_size) {
            return Err(format!(
                "{byte_size} bytes at offset {offset} reach beyond the {} bytes of shared memory \
                 region '{name}'",
                region.byte_size
            ));
        }
        Ok(Slot { name: name.to_owned(), offset, byte_size, region: region.clone() })
    }
}

impl Slot {
    /// A copy of what is in the slot.
    pub(crate) fn read(&self) -> Result<Bytes, String> {
        let length = usize::try_from(self.byte_size).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; length];
        self.region
            .file
            .read_exact_at(&mut bytes, self.region.offset + self.offset)
            .map_err(|error| format!("shared memory region '{}': {error}", self.name))?;
        Ok(Bytes::from(bytes))
    }

    /// Puts a tensor at the beginning of the slot.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() as u64 > self.byte_size {
            return Err(format!(
                "{} bytes do not fit the {} bytes given in shared memory region '{}'",
                bytes.len(),
                self.byte_size,
                self.name
            ));
        }
        self.region
            .file
            .write_all_at(bytes, self.region.offset + self.offset)
            .map_err(|error| format!("shared memory region '{}': {error}", self.name))
    }
}

/// That CUDA shared memory cannot be registered.
pub(crate) fn no_cuda(region: &str) -> InferError {
    InferError::Unsupported(format!(
        "CUDA shared memory is not supported; region '{region}' is not registered"
    ))
}

fn unknown(name: &str) -> String {
    format!("shared memory region '{name}' is not registered")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared memory object that goes when the test ends.
    struct Object(String);

    impl Object {
        fn new(name: &str, length: u64) -> Self {
            let key = format!("/fermata-test-{name}-{}", std::process::id());
            let flags = shm::OFlags::CREATE | shm::OFlags::RDWR;
            let object = shm::open(&key, flags, shm::Mode::RUSR | shm::Mode::WUSR).unwrap();
            File::from(object).set_len(length).unwrap();
            Self(key)
        }
    }

    impl Drop for Object {
        fn drop(&mut self) {
            let _ = shm::unlink(&self.0);
        }
    }

    #[test]
    fn what_is_written_is_read_at_its_place() {
        let object = Object::new("place", 64);
        let regions = Regions::default();
        regions.register("r", &object.0, 16, 32).unwrap();
        regions.slot("r", 4, 8).unwrap().write(b"fermata!").unwrap();
        regions.register("all", &object.0, 0, 64).unwrap();
        assert_eq!(&regions.slot("all", 20, 8).unwrap().read().unwrap()[..], b"fermata!");
    }

    #[test]
    fn bounds_are_kept() {
        let object = Object::new("bounds", 64);
        let regions = Regions::default();
        assert!(
            regions.register("r", &object.0, 60, 5).unwrap_err().contains("beyond its 64 bytes")
        );
        assert!(regions.register("r", &object.0, u64::MAX, 5).is_err());
        regions.register("r", &object.0, 0, 32).unwrap();
        assert!(regions.register("r", &object.0, 0, 32).unwrap_err().contains("already"));
        assert!(regions.slot("r", 30, 3).unwrap_err().contains("beyond the 32 bytes"));
        assert!(regions.slot("r", u64::MAX, 3).is_err());
        assert!(regions.slot("s", 0, 1).unwrap_err().contains("'s' is not registered"));
        assert!(
            regions.slot("r", 0, 3).unwrap().write(b"four").unwrap_err().contains("do not fit")
        );
    }

    #[test]
    fn a_region_that_was_shortened_is_an_error() {
        let object = Object::new("short", 64);
        let regions = Regions::default();
        regions.register("r", &object.0, 0, 64).unwrap();
        let slot = regions.slot("r", 0, 64).unwrap();
        let again = shm::open(&object.0, shm::OFlags::RDWR, shm::Mode::empty()).unwrap();
        File::from(again).set_len(8).unwrap();
        assert!(slot.read().unwrap_err().contains("region 'r'"));
    }

    #[test]
    fn regions_are_listed_and_forgotten() {
        let object = Object::new("list", 64);
        let regions = Regions::default();
        regions.register("a", &object.0, 0, 8).unwrap();
        regions.register("b", &object.0, 8, 8).unwrap();
        assert_eq!(regions.status("").unwrap().len(), 2);
        assert_eq!(regions.status("b").unwrap()[0].1.offset, 8);
        regions.unregister("a");
        assert!(regions.status("a").is_err());
        regions.unregister("");
        assert!(regions.status("").unwrap().is_empty());
    }

    #[test]
    fn an_object_that_is_not_there_is_named() {
        let error = Regions::default().register("r", "/fermata-no-such", 0, 8).unwrap_err();
        assert!(error.contains("'r'") && error.contains("'/fermata-no-such'"), "{error}");
    }
}
