//! A place for each of many things, of which the reader wants only the newest, and only of those
//! that changed.

use crate::latest::Latest;
use crate::sync::{AtomicU64, Ordering};

/// How many places a word of marks stands for.
const WIDTH: usize = 64;

/// Places with one writer and one reader. Writing is a store to the place and one or two marks;
/// reading finds the places that were written since without looking at the others.
#[derive(Debug)]
pub struct Mailbox<const N: usize> {
    places: Box<[Latest<N>]>,
    /// A bit for each place that was written and not read.
    marks: Box<[AtomicU64]>,
    /// A bit for each word of `marks` that is not zero, or was a moment ago.
    summary: Box<[AtomicU64]>,
}

impl<const N: usize> Mailbox<N> {
    /// So many places, with nothing in them.
    pub fn new(places: usize) -> Self {
        let zeros = |len: usize| (0..len).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let marks = places.div_ceil(WIDTH);
        Self {
            places: (0..places).map(|_| Latest::default()).collect(),
            marks: zeros(marks),
            summary: zeros(marks.div_ceil(WIDTH)),
        }
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no places at all.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Writes a place over.
    #[inline]
    pub fn put(&self, at: usize, words: [u64; N]) {
        self.places[at].write(words);
        // Always, even where the mark is there: who takes it must see what was written, and only
        // this tells.
        let before = self.marks[at / WIDTH].fetch_or(1 << (at % WIDTH), Ordering::Release);
        if before == 0 {
            let word = at / WIDTH;
            self.summary[word / WIDTH].fetch_or(1 << (word % WIDTH), Ordering::Release);
        }
    }

    /// Whether anything was written since it was read, as far as can be seen from here.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.summary.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// Hands every place that was written since to `read`, in order, each once and as it is now.
    /// Returns how many.
    #[inline]
    pub fn drain(&self, mut read: impl FnMut(usize, [u64; N])) -> usize {
        let mut count = 0;
        for (high, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for middle in Bits(summary.swap(0, Ordering::Acquire)) {
                let word = high * WIDTH + middle;
                for low in Bits(self.marks[word].swap(0, Ordering::Acquire)) {
                    let at = word * WIDTH + low;
                    read(at, self.places[at].read().0);
                    count += 1;
                }
            }
        }
        count
    }
}

/// The numbers of the bits that are set, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_once_and_in_its_newest_form() {
        let mailbox = Mailbox::<2>::new(5000);
        assert!(!mailbox.has_mail());
        for (at, word) in [(4999, 1), (0, 2), (64, 3), (4999, 4)] {
            mailbox.put(at, [word, word + 10]);
        }
        assert!(mailbox.has_mail());
        let mut read = Vec::new();
        assert_eq!(mailbox.drain(|at, words| read.push((at, words))), 3);
        assert_eq!(read, [(0, [2, 12]), (64, [3, 13]), (4999, [4, 14])]);
        assert_eq!(mailbox.drain(|_, _| panic!("nothing new")), 0);
    }
}
