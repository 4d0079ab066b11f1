//! A value of a few words with one writer, of which readers see the newest, whole.

use crate::sync::{AtomicU64, Ordering, fence, spin_loop};

/// Words that belong together, on a cache line of their own. A reader never holds the writer up.
#[derive(Debug)]
#[repr(align(64))]
pub struct Latest<const N: usize> {
    /// Odd while the words are being written.
    version: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for Latest<N> {
    fn default() -> Self {
        Self { version: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<const N: usize> Latest<N> {
    /// Writes the words over. Only one thread may.
    #[inline]
    pub fn write(&self, words: [u64; N]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Who sees one of the new words sees that the version is odd, or past it.
        fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// The words as they were written last, and how often they were written.
    #[inline]
    pub fn read(&self) -> ([u64; N], u64) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let words = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
                // Before the version is read again, so that a word that is too new shows there.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return (words, version / 2);
                }
            }
            spin_loop();
        }
    }

    /// How often the words were written.
    #[inline]
    pub fn count(&self) -> u64 {
        self.version.load(Ordering::Relaxed) / 2
    }
}
