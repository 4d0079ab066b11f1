//! A moment per ordinal, and the earliest of them: the timers of a fixed set of things.
//!
//! A complete binary tree of minima in one vector. Reading the earliest moment is one load; changing a
//! moment walks towards the root and stops at the first node that does not change, which for most updates
//! is after one or two steps. Nothing is allocated unless the set grows.

use fermata_core::Time;

/// Moments by ordinal; `Time::NEVER` where there is none.
#[derive(Clone, Debug)]
pub struct MinTree {
    /// `node[1]` is the root, `node[leaves + i]` the moment of ordinal `i`.
    node: Vec<Time>,
    leaves: usize,
}

impl Default for MinTree {
    fn default() -> Self {
        Self::with_len(1)
    }
}

impl MinTree {
    /// Room for ordinals below `len`, all at `Time::NEVER`.
    pub fn with_len(len: usize) -> Self {
        let leaves = len.next_power_of_two();
        Self { node: vec![Time::NEVER; 2 * leaves], leaves }
    }

    /// Makes room for ordinals below `len`.
    pub fn grow(&mut self, len: usize) {
        if len > self.leaves {
            let mut larger = Self::with_len(len);
            for i in 0..self.leaves {
                larger.set(i, self.get(i));
            }
            *self = larger;
        }
    }

    /// The moment of ordinal `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Time {
        self.node[self.leaves + i]
    }

    /// Changes the moment of ordinal `i`.
    #[inline]
    pub fn set(&mut self, i: usize, time: Time) {
        let mut at = self.leaves + i;
        self.node[at] = time;
        let mut least = time;
        while at > 1 {
            least = least.min(self.node[at ^ 1]);
            at >>= 1;
            let node = &mut self.node[at];
            if *node == least {
                return;
            }
            *node = least;
        }
    }

    /// Takes the moment of ordinal `i` away.
    #[inline]
    pub fn clear(&mut self, i: usize) {
        self.set(i, Time::NEVER);
    }

    /// The earliest moment of all.
    #[inline]
    pub fn earliest(&self) -> Time {
        self.node[1]
    }

    /// Who has the earliest moment, the lowest ordinal where several do; `None` if nobody has one.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        let least = self.node[1];
        if least == Time::NEVER {
            return None;
        }
        let mut at = 1;
        while at < self.leaves {
            // An addition, not a branch: which way it goes cannot be predicted.
            at = 2 * at + usize::from(self.node[2 * at] != least);
        }
        Some(at - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_scan(updates in prop::collection::vec((0usize..13, 0u64..20), 1..200)) {
            let (mut tree, mut plain) = (MinTree::with_len(5), [Time::NEVER; 13]);
            tree.grow(13);
            for (i, time) in updates {
                let time = if time == 0 { Time::NEVER } else { Time(time) };
                tree.set(i, time);
                plain[i] = time;
                let least = *plain.iter().min().unwrap();
                prop_assert_eq!(tree.earliest(), least);
                let first = plain.iter().position(|&t| t == least && t != Time::NEVER);
                prop_assert_eq!(tree.first(), first);
            }
        }
    }
}
