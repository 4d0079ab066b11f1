//! Those whose priority changes with time, and the first of them at any moment: a dynamic convex
//! hull.
//!
//! A priority is `alpha x + beta`, where x grows with time. As points (alpha, beta), who is first
//! at x is the point that a line of slope -x coming from above meets first; as lines over x, it is
//! the uppermost one. Both are Overmars and van Leeuwen's problem, and this is their tree: sorted
//! by alpha, members at the leaves, and each inner node knows where its upper half overtakes its
//! lower half, which happens once, since all of the upper half rises faster. That place is the
//! bridge between the hulls of the halves. So a query is one comparison a level, and nobody keeps a
//! hull.
//!
//! An update finds bridges anew along one path, each by walking down both halves at once: O(log^2
//! n). Most of them need not be found: a new line that is not above the bridge's end leaves it
//! where it is, and so does one that goes and was not part of it. The tree is balanced by weight; a
//! rotation costs two bridges, or three.

/// A priority that changes with time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// How fast it rises.
    pub alpha: f64,
    /// What it is at zero.
    pub beta: f64,
}

impl Point {
    /// The priority at x.
    #[inline]
    pub fn at(&self, x: f64) -> f64 {
        self.alpha * x + self.beta
    }

    /// By how much it is above another at x. From differences, so that lines are told apart that
    /// are nearly the same.
    #[inline]
    fn above(&self, other: &Self, x: f64) -> f64 {
        (self.alpha - other.alpha) * x + (self.beta - other.beta)
    }

    /// The order of the tree.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        (self.alpha, self.beta) < (other.alpha, other.beta)
    }
}

/// A priority queue whose priorities change with time. Of equal points the least key goes first.
#[derive(Clone, Debug)]
pub struct HullQueue<K> {
    root: Option<Child>,
    leaves: Vec<Leaf<K>>,
    /// What a query needs of each inner node; the rest is in `nodes`, so that this stays in the
    /// cache.
    gates: Vec<Gate>,
    nodes: Vec<Node>,
    /// Places of leaves and inner nodes that are gone.
    free_leaves: Vec<u32>,
    free_nodes: Vec<u32>,
    /// The inner nodes from the root to where something changes; empty between calls.
    path: Vec<u32>,
    len: usize,
}

/// The members at one point.
#[derive(Clone, Debug)]
struct Leaf<K> {
    point: Point,
    /// The least key.
    first: K,
    /// The other keys, the least last.
    others: Vec<K>,
}

/// Below an inner node: another, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

/// Marks a leaf.
const LEAF: u32 = 1 << 31;

/// Neither half of a node has more than this many times the members of the other.
const HEAVY: u32 = 3;
/// A half that is too heavy gives away its inner quarter if that has less than this many times the
/// members of the outer one, else half of it. With these two one step always suffices (Hirai and
/// Yamamoto).
const INNER: u32 = 2;

/// Where the upper half of an inner node overtakes the lower one.
#[derive(Clone, Copy, Debug)]
struct Gate {
    x: f64,
    lower: Child,
    upper: Child,
}

/// The rest of an inner node.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Who is first at the gate in the lower half, and in the upper half, equally: the ends of the
    /// bridge.
    ends: (Point, Point),
    /// No point of the lower half is this or behind it, every one of the upper half is. Its members
    /// may be gone.
    split: Point,
    /// How many points the halves have.
    counts: (u32, u32),
}

impl<K> Default for HullQueue<K> {
    fn default() -> Self {
        Self {
            root: None,
            leaves: Vec::new(),
            gates: Vec::new(),
            nodes: Vec::new(),
            free_leaves: Vec::new(),
            free_nodes: Vec::new(),
            path: Vec::new(),
            len: 0,
        }
    }
}

impl<K: Copy + Ord> HullQueue<K> {
    /// How many members it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Who is first at x.
    #[inline]
    pub fn best(&self, x: f64) -> Option<(Point, K)> {
        let mut at = self.root?;
        while let Some(node) = at.node() {
            let gate = &self.gates[node];
            at = if x >= gate.x { gate.upper } else { gate.lower };
        }
        let leaf = &self.leaves[at.leaf()];
        Some((leaf.point, leaf.first))
    }

    /// Adds a member with this priority, which is finite.
    pub fn insert(&mut self, point: Point, key: K) {
        assert!(point.alpha.is_finite() && point.beta.is_finite(), "priorities are finite");
        self.len += 1;
        let Some(at) = self.walk_to(point) else {
            self.root = Some(self.new_leaf(point, key));
            return;
        };
        let leaf = &mut self.leaves[at.leaf()];
        if leaf.point == point {
            self.path.clear();
            return leaf.add(key);
        }
        let other = leaf.point;
        let leaf = self.new_leaf(point, key);
        let is_before = point.is_before(&other);
        let (lower, upper) = if is_before { (leaf, at) } else { (at, leaf) };
        let joined = self.new_node(lower, upper, if is_before { other } else { point });
        self.put_below_path(at, joined);
        while let Some(node) = self.path.pop() {
            let node = node as usize;
            *self.nodes[node].count(&point) += 1;
            let (x, end) = (self.gates[node].x, self.nodes[node].ends.0);
            let stays = x.is_finite() && point.above(&end, x) <= 0.0;
            if !self.balance(node) && !stays {
                self.find_bridge(node);
            }
        }
    }

    /// Takes a member out, by the priority it was added with; false if it is not there.
    pub fn remove(&mut self, point: Point, key: K) -> bool {
        let Some(at) = self.walk_to(point) else { return false };
        let leaf = &mut self.leaves[at.leaf()];
        let is_last = leaf.others.is_empty();
        if leaf.point != point || (is_last && leaf.first != key) || (!is_last && !leaf.take(key)) {
            self.path.clear();
            return false;
        }
        self.len -= 1;
        if !is_last {
            self.path.clear();
            return true;
        }
        self.free_leaves.push(at.leaf() as u32);
        let Some(parent) = self.path.pop() else {
            self.root = None;
            return true;
        };
        let gate = &self.gates[parent as usize];
        let other = if gate.lower == at { gate.upper } else { gate.lower };
        self.free_nodes.push(parent);
        self.put_below_path(Child(parent), other);
        while let Some(node) = self.path.pop() {
            let node = node as usize;
            *self.nodes[node].count(&point) -= 1;
            let ends = self.nodes[node].ends;
            let stays = ends.0 != point && ends.1 != point;
            if !self.balance(node) && !stays {
                self.find_bridge(node);
            }
        }
        true
    }

    /// Takes all members out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The leaf where a point is, or beside which it would be; the nodes above it are then in the
    /// path.
    fn walk_to(&mut self, point: Point) -> Option<Child> {
        let mut at = self.root?;
        while let Some(node) = at.node() {
            self.path.push(node as u32);
            let gate = &self.gates[node];
            at = if point.is_before(&self.nodes[node].split) { gate.lower } else { gate.upper };
        }
        Some(at)
    }

    fn new_leaf(&mut self, point: Point, key: K) -> Child {
        let new = Leaf { point, first: key, others: Vec::new() };
        if let Some(leaf) = self.free_leaves.pop() {
            self.leaves[leaf as usize] = new;
            return Child(leaf | LEAF);
        }
        self.leaves.push(new);
        Child((self.leaves.len() - 1) as u32 | LEAF)
    }

    fn new_node(&mut self, lower: Child, upper: Child, split: Point) -> Child {
        let gate = Gate { x: 0.0, lower, upper };
        let ends = (Point::default(), Point::default());
        let node = Node { ends, split, counts: (1, 1) };
        let at = match self.free_nodes.pop() {
            Some(at) => {
                (self.gates[at as usize], self.nodes[at as usize]) = (gate, node);
                at
            }
            None => {
                self.gates.push(gate);
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.find_bridge(at as usize);
        Child(at)
    }

    /// Puts something else in the place of `old`, below the last node of the path.
    fn put_below_path(&mut self, old: Child, new: Child) {
        match self.path.last() {
            None => self.root = Some(new),
            Some(&above) => {
                let gate = &mut self.gates[above as usize];
                let place = if gate.lower == old { &mut gate.lower } else { &mut gate.upper };
                *place = new;
            }
        }
    }

    /// Turns a node whose one half is too heavy, and finds its bridges; false if none is.
    fn balance(&mut self, node: usize) -> bool {
        let (lower, upper) = self.nodes[node].counts;
        if upper > HEAVY * lower {
            let heavy = self.gates[node].upper.node().expect("several points have a node");
            let (inner, outer) = self.nodes[heavy].counts;
            if inner >= INNER * outer {
                let freed = self.turn_right(heavy);
                self.find_bridge(freed);
            }
            let freed = self.turn_left(node);
            self.find_bridge(freed);
        } else if lower > HEAVY * upper {
            let heavy = self.gates[node].lower.node().expect("several points have a node");
            let (outer, inner) = self.nodes[heavy].counts;
            if inner >= INNER * outer {
                let freed = self.turn_left(heavy);
                self.find_bridge(freed);
            }
            let freed = self.turn_right(node);
            self.find_bridge(freed);
        } else {
            return false;
        }
        self.find_bridge(node);
        true
    }

    /// `(a, (b, c))` becomes `((a, b), c)`; the place of `(a, b)`.
    fn turn_left(&mut self, node: usize) -> usize {
        let child = self.gates[node].upper;
        let inner = child.node().expect("a heavy half is no leaf");
        let (a, b, c) = (self.gates[node].lower, self.gates[inner].lower, self.gates[inner].upper);
        let ((a_count, _), (b_count, c_count)) =
            (self.nodes[node].counts, self.nodes[inner].counts);
        let splits = (self.nodes[node].split, self.nodes[inner].split);
        (self.gates[inner].lower, self.gates[inner].upper) = (a, b);
        (self.gates[node].lower, self.gates[node].upper) = (child, c);
        (self.nodes[inner].split, self.nodes[node].split) = splits;
        self.nodes[inner].counts = (a_count, b_count);
        self.nodes[node].counts = (a_count + b_count, c_count);
        inner
    }

    /// `((a, b), c)` becomes `(a, (b, c))`; the place of `(b, c)`.
    fn turn_right(&mut self, node: usize) -> usize {
        let child = self.gates[node].lower;
        let inner = child.node().expect("a heavy half is no leaf");
        let (a, b, c) = (self.gates[inner].lower, self.gates[inner].upper, self.gates[node].upper);
        let ((a_count, b_count), (_, c_count)) =
            (self.nodes[inner].counts, self.nodes[node].counts);
        let splits = (self.nodes[node].split, self.nodes[inner].split);
        (self.gates[inner].lower, self.gates[inner].upper) = (b, c);
        (self.gates[node].lower, self.gates[node].upper) = (a, child);
        (self.nodes[inner].split, self.nodes[node].split) = splits;
        self.nodes[inner].counts = (b_count, c_count);
        self.nodes[node].counts = (a_count, b_count + c_count);
        inner
    }

    /// Finds where the upper half of a node overtakes its lower half.
    ///
    /// Both are convex over x, and the upper one rises faster everywhere, so there is one such
    /// place. What is known of a half before one goes down into it are the two lines that meet at
    /// its own gate, and are below it everywhere else. Each step finds out on which side of a gate
    /// the place is, and so leaves out a half of a half.
    ///
    /// Lines that are nearly the same meet anywhere, by rounding. So the place is kept between the
    /// gates that it was found to be after and before, and gates beyond those are not asked: then
    /// the halves differ by no more than rounding there.
    fn find_bridge(&mut self, node: usize) {
        let Gate { lower: mut low, upper: mut high, .. } = self.gates[node];
        let rise = self.nodes[node].split.alpha;
        let (mut after, mut until) = (f64::NEG_INFINITY, f64::INFINITY);
        let ends = loop {
            (low, high) = (self.skip(low, after, until), self.skip(high, after, until));
            let (is_before_low, is_before_high) = match (low.node(), high.node()) {
                (None, None) => {
                    break (self.leaves[low.leaf()].point, self.leaves[high.leaf()].point);
                }
                (None, Some(other)) => {
                    let line = self.leaves[low.leaf()].point;
                    let x = self.gates[other].x;
                    (None, Some(line.above(&self.nodes[other].ends.0, x) <= 0.0))
                }
                (Some(one), None) => {
                    let line = self.leaves[high.leaf()].point;
                    let x = self.gates[one].x;
                    (Some(line.above(&self.nodes[one].ends.1, x) >= 0.0), None)
                }
                (Some(one), Some(other)) => self.compare(one, other, rise),
            };
            low = self.descend(low, is_before_low, (&mut after, &mut until));
            high = self.descend(high, is_before_high, (&mut after, &mut until));
        };
        let x = overtakes(ends.0, ends.1).max(after).min(until);
        self.gates[node].x = x;
        self.nodes[node].ends = ends;
    }

    /// Whether the place where one node is overtaken by another, all of which rises at least so
    /// fast and all of the one at most, is before the one's gate, and before the other's: at least
    /// one of the two is found out.
    #[inline]
    fn compare(&self, one: usize, other: usize, rise: f64) -> (Option<bool>, Option<bool>) {
        let (x, other_x) = (self.gates[one].x, self.gates[other].x);
        // At a gate its lower end is about to be overtaken by its upper end.
        let ((low, high), (other_low, other_high)) = (self.nodes[one].ends, self.nodes[other].ends);
        if x > other_x {
            // At least one of the two holds, but for rounding.
            let is_after = low.above(&other_high, other_x) > 0.0;
            let is_before = other_high.above(&low, x) >= 0.0 || !is_after;
            (is_before.then_some(true), is_after.then_some(false))
        } else if other_low.above(&high, x) >= 0.0 {
            (Some(true), Some(true))
        } else if high.above(&other_low, other_x) > 0.0 {
            (Some(false), Some(false))
        } else {
            // From the other's gate back to x the other falls by at least `rise`, and from x to
            // there the one rises by at most that: which of the two is below by this tells either
            // that the other is below at x, or the one at the other's gate.
            let above = (other_low.alpha - rise) * other_x
                + (rise - high.alpha) * x
                + (other_low.beta - high.beta);
            if above <= 0.0 { (Some(false), None) } else { (None, Some(true)) }
        }
    }

    /// The half of a node on the side of its gate where the place is, which is then bounded by the
    /// gate.
    #[inline]
    fn descend(
        &self,
        at: Child,
        is_before: Option<bool>,
        (after, until): (&mut f64, &mut f64),
    ) -> Child {
        let (Some(is_before), Some(node)) = (is_before, at.node()) else { return at };
        let gate = &self.gates[node];
        if is_before {
            *until = until.min(gate.x);
            gate.lower
        } else {
            *after = after.max(gate.x);
            gate.upper
        }
    }

    /// Goes down past the gates that are not between these two.
    #[inline]
    fn skip(&self, mut at: Child, after: f64, until: f64) -> Child {
        while let Some(node) = at.node() {
            let gate = &self.gates[node];
            if gate.x > after && gate.x < until {
                break;
            }
            at = if gate.x <= after { gate.upper } else { gate.lower };
        }
        at
    }
}

/// Where a line overtakes another that rises less fast; before all time if it rises as fast, since
/// it is above then.
#[inline]
fn overtakes(low: Point, high: Point) -> f64 {
    let rise = high.alpha - low.alpha;
    if rise > 0.0 { (low.beta - high.beta) / rise } else { f64::NEG_INFINITY }
}

impl Node {
    /// How many points the half has that a point is in.
    #[inline]
    fn count(&mut self, point: &Point) -> &mut u32 {
        if point.is_before(&self.split) { &mut self.counts.0 } else { &mut self.counts.1 }
    }
}

impl<K: Copy + Ord> Leaf<K> {
    fn add(&mut self, key: K) {
        let more = self.first.max(key);
        self.first = self.first.min(key);
        let at = self.others.partition_point(|other| *other > more);
        self.others.insert(at, more);
    }

    /// Takes one of several keys; false if it is not there.
    fn take(&mut self, key: K) -> bool {
        if self.first == key {
            self.first = self.others.pop().expect("there are several keys");
            return true;
        }
        let place = self.others.binary_search_by(|other| key.cmp(other));
        place.map(|at| self.others.remove(at)).is_ok()
    }
}

impl Child {
    /// Its place among the inner nodes, if it is one.
    #[inline]
    fn node(self) -> Option<usize> {
        (self.0 & LEAF == 0).then_some(self.0 as usize)
    }

    /// Its place among the leaves, which it is.
    #[inline]
    fn leaf(self) -> usize {
        (self.0 & !LEAF) as usize
    }
}

#[cfg(test)]
mod tests;
