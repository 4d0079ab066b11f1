//! Shares of a GPU: green contexts, each with multiprocessors of its own.
//!
//! A GPU is split once, into groups of equal size and a remainder. Neither a group nor the
//! remainder can be split again. A share consists of some of the groups, or of the remainder. Every
//! worker makes the same split and takes its own part, so the shares of one cut never overlap,
//! although each is made by another process.

#![expect(unsafe_code, reason = "the driver is a C library")]

use std::ffi::c_uint;
use std::ops::Range;
use std::ptr::null_mut;

use cudarc::driver::sys;

use super::handles::{Context, CudaError, Device, Result, Stream, check};

/// A share of a GPU. Work in its context runs on its multiprocessors only.
#[derive(Debug)]
pub(crate) struct Green {
    green: sys::CUgreenCtx,
    context: sys::CUcontext,
}

// SAFETY: any thread may use a context.
unsafe impl Send for Green {}
// SAFETY: the driver locks.
unsafe impl Sync for Green {}

impl Green {
    /// The `part`-th share of a GPU that is cut into shares with `counts` multiprocessors.
    pub(crate) fn new(device: &Device, counts: &[u32], part: usize) -> Result<Self> {
        let (all, step) = device.multiprocessors()?;
        let whole = device.whole()?;
        // Large groups come first: their multiprocessors are neighbours. The driver cannot always
        // provide enough of them.
        let mut last = CudaError::unavailable("cut off a share");
        let cut_off = cut_off(counts, all, step);
        for size in [common(&counts[..cut_off]), step] {
            let wanted = ShareGroups::of(counts, part, cut_off, size);
            match split(&whole, wanted.groups, size) {
                Ok((groups, left)) if wanted.is_made_of(&groups, size) => {
                    return match wanted.mine {
                        Some(mine) => Self::of(device, groups[mine].to_vec()),
                        None => Self::of(device, vec![left]),
                    };
                }
                Ok(_) => {}
                // Any other error concerns this worker alone. If it went on with another split, its
                // share would overlap those of the other workers.
                Err(error) if error.is_unavailable() => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// A share that consists of multiprocessors from one split.
    fn of(device: &Device, mut resources: Vec<sys::CUdevResource>) -> Result<Self> {
        let (mut description, mut green) = (null_mut(), null_mut());
        let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as c_uint;
        let count = resources.len() as c_uint;
        // SAFETY: the call reads as many resources as the vector has.
        let code = unsafe {
            sys::cuDevResourceGenerateDesc(&raw mut description, resources.as_mut_ptr(), count)
        };
        check("describe a share", code)?;
        // SAFETY: the call writes one handle.
        let code =
            unsafe { sys::cuGreenCtxCreate(&raw mut green, description, device.handle(), flags) };
        check("make a share", code)?;
        let mut context = null_mut();
        // SAFETY: the handle was just made.
        check("context of a share", unsafe { sys::cuCtxFromGreenCtx(&raw mut context, green) })?;
        Ok(Self { green, context })
    }

    /// The context of work on this share.
    pub(crate) fn context(&self) -> Context {
        Context { handle: self.context, stays: false }
    }

    /// A stream whose work runs on this share.
    pub(crate) fn stream(&self) -> Result<Stream> {
        let mut stream = null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: the share exists for as long as this value.
        let code = unsafe { sys::cuGreenCtxStreamCreate(&raw mut stream, self.green, flags, 0) };
        check("stream of a share", code)?;
        Ok(Stream(stream))
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        // SAFETY: it was made once and is destroyed once, after all work on it.
        unsafe { sys::cuGreenCtxDestroy(self.green) };
    }
}

/// Splits off at most `groups` groups of `size` multiprocessors, and returns them with the
/// remainder. With no groups, the remainder is the whole GPU.
fn split(
    whole: &sys::CUdevResource,
    groups: usize,
    size: u32,
) -> Result<(Vec<sys::CUdevResource>, sys::CUdevResource)> {
    if groups == 0 {
        return Ok((Vec::new(), *whole));
    }
    // SAFETY: structures of numbers; all zeros is an invalid resource, which the call overwrites.
    let (mut made, mut left) = unsafe { (vec![std::mem::zeroed(); groups], std::mem::zeroed()) };
    let mut count = groups as c_uint;
    // SAFETY: there is room for `count` groups.
    let code = unsafe {
        sys::cuDevSmResourceSplitByCount(
            made.as_mut_ptr(),
            &raw mut count,
            whole,
            &raw mut left,
            0,
            size,
        )
    };
    check("cut off a share", code)?;
    made.truncate(count as usize);
    Ok((made, left))
}

/// Which groups of a split a share consists of.
#[derive(Debug, PartialEq, Eq)]
struct ShareGroups {
    /// How many groups are split off.
    groups: usize,
    /// The groups of this share; `None` for the remainder.
    mine: Option<Range<usize>>,
}

impl ShareGroups {
    /// Whether the driver made the groups that were asked for. Where it cannot, it makes fewer or
    /// larger ones.
    fn is_made_of(&self, groups: &[sys::CUdevResource], size: u32) -> bool {
        // SAFETY: the resource has multiprocessors, because the split was one of multiprocessors.
        let count = |group: &sys::CUdevResource| unsafe { group.__bindgen_anon_1.sm.smCount };
        groups.len() == self.groups && groups.iter().all(|group| count(group) == size)
    }

    /// The groups of the `part`-th share, where the first `cut_off` shares are split off in groups
    /// of `size` multiprocessors.
    fn of(counts: &[u32], part: usize, cut_off: usize, size: u32) -> Self {
        let end = |parts: usize| (counts[..parts].iter().sum::<u32>() / size) as usize;
        let mine = (part < cut_off).then(|| end(part)..end(part + 1));
        Self { groups: end(cut_off), mine }
    }
}

/// How many shares are split off. The last share gets the remainder instead, if the remainder is no
/// more than it wants, or too small for another share.
fn cut_off(counts: &[u32], all: u32, step: u32) -> usize {
    counts.len() - usize::from(counts.iter().sum::<u32>() + step > all)
}

/// The largest group size that divides every count.
fn common(counts: &[u32]) -> u32 {
    let divisor = |mut a: u32, mut b: u32| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    counts.iter().copied().fold(0, divisor).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_groups(groups: usize, mine: Option<Range<usize>>) -> ShareGroups {
        ShareGroups { groups, mine }
    }

    #[test]
    fn two_shares_are_one_group_and_the_rest() {
        let counts = [24, 108];
        assert_eq!((cut_off(&counts, 132, 8), common(&counts[..1])), (1, 24));
        assert_eq!(ShareGroups::of(&counts, 0, 1, 24), share_groups(1, Some(0..1)));
        assert_eq!(ShareGroups::of(&counts, 1, 1, 24), share_groups(1, None));
        assert_eq!(
            ShareGroups::of(&counts, 1, 1, 8),
            share_groups(3, None),
            "in smaller groups as well"
        );
    }

    #[test]
    fn what_is_too_little_for_a_share_goes_to_the_last() {
        assert_eq!(cut_off(&[64, 64], 132, 8), 1);
        assert_eq!(cut_off(&[64, 56], 132, 8), 2);
        assert_eq!((cut_off(&[132], 132, 8), cut_off(&[24], 132, 8)), (0, 1));
    }

    #[test]
    fn shares_have_no_group_in_common_and_leave_none_over() {
        for counts in [&[40, 40, 52][..], &[32, 32, 32, 36], &[64, 24, 32, 12], &[40, 48], &[132]] {
            let cut_off = cut_off(counts, 132, 8);
            for size in [common(&counts[..cut_off]), 8] {
                let mut next = 0;
                for part in 0..counts.len() {
                    let ShareGroups { groups, mine } = ShareGroups::of(counts, part, cut_off, size);
                    let Some(mine) = mine else {
                        assert_eq!((groups, part), (next, counts.len() - 1), "{counts:?}");
                        continue;
                    };
                    assert_eq!((mine.start, mine.len() as u32 * size), (next, counts[part]));
                    next = mine.end;
                }
            }
        }
    }
}
