//! Memory that the server and a worker share.

#![expect(unsafe_code, reason = "two processes write to the same memory, never both at once")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped region. Messages settle which process may touch which part: a slot is the server's
/// until it asks for the batch to run, then the worker's until the answer has come.
#[derive(Debug)]
pub(crate) struct Region {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: the value is memory, and messages settle which process touches it, as said above.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes memory without a name. The worker can open it at the path while the file is open here.
    pub(crate) fn create(bytes: usize) -> io::Result<(Self, File, PathBuf)> {
        let file = File::from(memfd_create("fermata", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, bytes as u64)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok((Self::map(&file, bytes)?, file, path.into()))
    }

    /// Maps memory that the other process made.
    pub(crate) fn open(path: &Path, bytes: usize) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::other("the shared memory is too small"));
        }
        Self::map(&file, bytes)
    }

    fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so that nothing else lies there.
        let start = unsafe { mmap(null_mut(), bytes.max(1), access, flags, file, 0)? };
        Ok(Self { start, bytes: bytes.max(1) })
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut c_void {
        self.start
    }

    /// A part of it, to be read.
    ///
    /// # Panics
    ///
    /// If the part exceeds the region.
    pub(crate) fn read(&self, at: usize, bytes: usize) -> &[u8] {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.bytes), "it lies within");
        // SAFETY: the part lies within memory that stays mapped for as long as this value, and the
        // other process does not write to a slot that is ours.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>().add(at), bytes) }
    }

    /// Copies data into it.
    ///
    /// # Panics
    ///
    /// If the data does not fit.
    pub(crate) fn write(&self, at: usize, data: &[u8]) {
        assert!(at.checked_add(data.len()).is_some_and(|end| end <= self.bytes), "it fits");
        // SAFETY: as above; the other process reads this part only after the message that says so.
        unsafe {
            let to = self.start.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was mapped once, and no slice of it is left.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (mine, _file, path) = Region::create(10_000).unwrap();
        let theirs = Region::open(&path, 10_000).unwrap();
        mine.write(9_000, b"batch");
        assert_eq!(theirs.read(9_000, 5), b"batch");
        Region::open(&path, 20_000).unwrap_err();
    }

    #[test]
    #[should_panic(expected = "it fits")]
    fn nothing_is_written_beyond_the_end() {
        Region::create(8).unwrap().0.write(6, b"abc");
    }
}
