//! A moment per ordinal, and the earliest of them: the timers of a fixed set of things.
//!
//! A tree of minima, eight to a node, in one vector. Reading the earliest moment is one load. A
//! node is a cache line, and is searched only when its earliest moment is put off; then without a
//! branch, since which way a comparison goes cannot be predicted. Changing a moment walks towards
//! the root and stops at the first node whose earliest stays, which is nearly always the first.
//! Nothing is allocated unless the set grows.

use fermata_core::Time;

/// How many moments a node has.
const WIDTH: usize = 8;

/// Moments by ordinal; `Time::NEVER` where there is none.
#[derive(Clone, Debug)]
pub struct MinTree {
    /// `nodes[0]` is the root. Place `k` of an inner node `n` has the earliest moment of node `8 n
    /// + 1 + k`.
    nodes: Vec<Node>,
    /// Ordinal `i` is in node `leaves + i / 8`.
    leaves: usize,
    earliest: Time,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([Time; WIDTH]);

impl Default for MinTree {
    fn default() -> Self {
        Self::with_len(1)
    }
}

impl MinTree {
    /// Room for ordinals below `len`, all at `Time::NEVER`.
    pub fn with_len(len: usize) -> Self {
        let (mut leaves, mut room) = (0, WIDTH);
        while room < len {
            (leaves, room) = (WIDTH * leaves + 1, WIDTH * room);
        }
        // A power of two, so that a set that grows one by one is seldom moved.
        let nodes = leaves + len.div_ceil(WIDTH).next_power_of_two();
        let nodes = vec![Node([Time::NEVER; WIDTH]); nodes];
        Self { nodes, leaves, earliest: Time::NEVER }
    }

    /// Makes room for ordinals below `len`.
    pub fn grow(&mut self, len: usize) {
        let room = (self.nodes.len() - self.leaves) * WIDTH;
        if len > room {
            let mut larger = Self::with_len(len);
            for i in 0..room {
                larger.set(i, self.get(i));
            }
            *self = larger;
        }
    }

    /// The moment of ordinal `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Time {
        self.nodes[self.leaves + i / WIDTH].0[i % WIDTH]
    }

    /// Changes the moment of ordinal `i`.
    #[inline]
    pub fn set(&mut self, i: usize, time: Time) {
        let (mut at, mut place, mut new) = (self.leaves + i / WIDTH, i % WIDTH, time);
        loop {
            let node = &mut self.nodes[at];
            let old = std::mem::replace(&mut node.0[place], new);
            let above = if at > 0 { Some(((at - 1) / WIDTH, (at - 1) % WIDTH)) } else { None };
            let least = above.map_or(self.earliest, |(at, place)| self.nodes[at].0[place]);
            if new > least {
                if old > least {
                    return;
                }
                new = self.nodes[at].earliest();
            }
            if new == least {
                return;
            }
            match above {
                Some(above) => (at, place) = above,
                None => return self.earliest = new,
            }
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
        self.earliest
    }

    /// Calls `found` with every ordinal whose moment is before `bound`, in ascending order.
    pub fn each_before(&self, bound: Time, mut found: impl FnMut(usize)) {
        if self.earliest < bound {
            self.visit(0, bound, &mut found);
        }
    }

    fn visit(&self, at: usize, bound: Time, found: &mut impl FnMut(usize)) {
        for (place, &moment) in self.nodes[at].0.iter().enumerate() {
            if moment >= bound {
                continue;
            }
            if at < self.leaves {
                self.visit(WIDTH * at + 1 + place, bound, found);
            } else {
                found((at - self.leaves) * WIDTH + place);
            }
        }
    }

    /// Who has the earliest moment, the lowest ordinal where several do; `None` if nobody has one.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        if self.earliest == Time::NEVER {
            return None;
        }
        let mut at = 0;
        while at < self.leaves {
            at = WIDTH * at + 1 + self.nodes[at].place_of(self.earliest);
        }
        Some((at - self.leaves) * WIDTH + self.nodes[at].place_of(self.earliest))
    }
}

impl Node {
    #[inline]
    fn earliest(&self) -> Time {
        let [a, b, c, d, e, f, g, h] = self.0;
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    }

    /// The lowest place with this moment, which is there.
    #[inline]
    fn place_of(&self, time: Time) -> usize {
        let mut place = WIDTH - 1;
        for at in (0..WIDTH - 1).rev() {
            place = if self.0[at] == time { at } else { place };
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_scan(updates in prop::collection::vec((0usize..80, 0u64..40), 1..300)) {
            let (mut tree, mut plain) = (MinTree::with_len(5), [Time::NEVER; 80]);
            tree.grow(80);
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
