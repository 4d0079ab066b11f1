//! A set of small ordinals that finds its lowest member at once: the idle executors.
//!
//! Bits in words, and one bit per word in a summary: 10,000 executors need 157 words and 3 summary
//! words.

/// A set of ordinals.
#[derive(Clone, Debug, Default)]
pub struct IdSet {
    words: Vec<u64>,
    /// Bit `w` says that `words[w]` has a member.
    summary: Vec<u64>,
    len: usize,
}

impl IdSet {
    /// How many members there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `id` is a member.
    pub fn contains(&self, id: usize) -> bool {
        self.words.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Adds `id`; false if it was there already.
    #[inline]
    pub fn insert(&mut self, id: usize) -> bool {
        let word = id / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        let bit = 1 << (id % 64);
        let added = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.summary[word / 64] |= 1 << (word % 64);
        self.len += usize::from(added);
        added
    }

    /// Takes `id` out; false if it was not there.
    #[inline]
    pub fn remove(&mut self, id: usize) -> bool {
        if !self.contains(id) {
            return false;
        }
        let word = id / 64;
        self.words[word] &= !(1 << (id % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        self.len -= 1;
        true
    }

    /// The lowest member.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        let at = self.summary.iter().position(|&summary| summary != 0)?;
        let word = at * 64 + self.summary[at].trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set(
            steps in prop::collection::vec((any::<bool>(), 0usize..9000), 1..300),
        ) {
            let (mut set, mut plain) = (IdSet::default(), BTreeSet::new());
            for (insert, id) in steps {
                if insert {
                    prop_assert_eq!(set.insert(id), plain.insert(id));
                } else {
                    prop_assert_eq!(set.remove(id), plain.remove(&id));
                }
                prop_assert_eq!(set.len(), plain.len());
                prop_assert_eq!(set.first(), plain.first().copied());
                prop_assert_eq!(set.contains(id), plain.contains(&id));
            }
        }
    }
}
