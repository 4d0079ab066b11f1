//! Those whose priority changes with time, and the first of them at any moment: a dynamic convex hull.
//!
//! A priority is `alpha x + beta`, where x grows with time. As points (alpha, beta), who is first at x is the point that
//! a line of slope -x coming from above meets first; as lines over x, it is the uppermost one. Both are Overmars and van
//! Leeuwen's problem, and this is their tree: sorted by alpha, members at the leaves, and each inner node knows where its
//! upper half overtakes its lower half, which happens once, since all of the upper half rises faster. That place is the
//! bridge between the hulls of the halves. So a query is one comparison a level, and nobody keeps a hull.
//!
//! An update finds bridges anew along one path, each by walking down both halves at once: O(log^2 n). Most of them need
//! not be found: a new line that is not above the bridge's end leaves it where it is, and so does one that goes and was
//! not part of it. The tree is balanced by weight; rotations cost two bridges.

use std::cmp::Reverse;

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
}

/// A priority queue whose priorities change with time. Of equal points the least key goes first.
#[derive(Clone, Debug)]
pub struct HullQueue<K> {
    root: Option<Child>,
    leaves: Vec<(Point, K)>,
    /// What a query needs of each inner node; the rest is in `nodes`, so that this stays in the cache.
    gates: Vec<Gate>,
    nodes: Vec<Node<K>>,
    /// Places of leaves and inner nodes that are gone.
    free_leaves: Vec<u32>,
    free_nodes: Vec<u32>,
    /// The inner nodes from the root to where something changes; empty between calls.
    path: Vec<u32>,
}

/// Below an inner node: another, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Child(u32);

/// Marks a leaf.
const LEAF: u32 = 1 << 31;

/// Neither half of a node has more than this many times the members of the other.
const HEAVY: u32 = 3;
/// A half that is too heavy gives away its inner quarter if that has less than this many times the members of the outer
/// one, else half of it. With these two one step always suffices (Hirai and Yamamoto).
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
struct Node<K> {
    /// The priority at the gate: both halves have it there.
    y: f64,
    /// Who has it there in the lower half, and in the upper half: the ends of the bridge.
    ends: (Point, Point),
    /// No member of the lower half is this or above, every one of the upper half is. Who it was may be gone.
    split: (Point, K),
    /// How many members the halves have.
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
        }
    }
}

impl<K: Copy + Ord> HullQueue<K> {
    /// How many members it has.
    pub fn len(&self) -> usize {
        self.leaves.len() - self.free_leaves.len()
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
        Some(self.leaves[at.leaf()])
    }

    /// Adds a member with this priority, which is finite.
    pub fn insert(&mut self, point: Point, key: K) {
        assert!(point.alpha.is_finite() && point.beta.is_finite(), "priorities are finite");
        let leaf = self.new_leaf(point, key);
        let Some(mut at) = self.root else {
            self.root = Some(leaf);
            return;
        };
        while let Some(node) = at.node() {
            self.path.push(node as u32);
            let is_below = before((point, key), self.nodes[node].split);
            let (gate, counts) = (&self.gates[node], &mut self.nodes[node].counts);
            at = if is_below {
                counts.0 += 1;
                gate.lower
            } else {
                counts.1 += 1;
                gate.upper
            };
        }
        let other = self.leaves[at.leaf()];
        let (lower, upper) = if before((point, key), other) { (leaf, at) } else { (at, leaf) };
        let split = self.leaves[upper.leaf()];
        let joined = self.new_node(lower, upper, split);
        self.put_below_path(at, joined);
        while let Some(node) = self.path.pop() {
            let node = node as usize;
            let x = self.gates[node].x;
            // Equal is not above: those that meet the bridge's end leave it where it is.
            let stays = x.is_finite() && point.at(x) <= self.nodes[node].y;
            if !self.balance(node) && !stays {
                self.find_bridge(node);
            }
        }
    }

    /// Takes a member out, by the priority it was added with; false if it is not there.
    pub fn remove(&mut self, point: Point, key: K) -> bool {
        let Some(mut at) = self.root else { return false };
        while let Some(node) = at.node() {
            self.path.push(node as u32);
            let gate = &self.gates[node];
            let is_below = before((point, key), self.nodes[node].split);
            at = if is_below { gate.lower } else { gate.upper };
        }
        if self.leaves[at.leaf()] != (point, key) {
            self.path.clear();
            return false;
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
            let Node { ends, split, ref mut counts, .. } = self.nodes[node];
            let count = if before((point, key), split) { &mut counts.0 } else { &mut counts.1 };
            *count -= 1;
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

    fn new_leaf(&mut self, point: Point, key: K) -> Child {
        if let Some(leaf) = self.free_leaves.pop() {
            self.leaves[leaf as usize] = (point, key);
            return Child(leaf | LEAF);
        }
        self.leaves.push((point, key));
        Child((self.leaves.len() - 1) as u32 | LEAF)
    }

    fn new_node(&mut self, lower: Child, upper: Child, split: (Point, K)) -> Child {
        let gate = Gate { x: 0.0, lower, upper };
        let ends = (Point::default(), Point::default());
        let node = Node { y: 0.0, ends, split, counts: (1, 1) };
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
            let heavy = self.gates[node].upper.node().expect("several members have a node");
            let (inner, outer) = self.nodes[heavy].counts;
            if inner >= INNER * outer {
                let freed = self.turn_right(heavy);
                self.find_bridge(freed);
            }
            let freed = self.turn_left(node);
            self.find_bridge(freed);
        } else if lower > HEAVY * upper {
            let heavy = self.gates[node].lower.node().expect("several members have a node");
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
    /// Both are convex over x, and the upper one rises faster everywhere, so there is one such place. What is known of a half
    /// before one goes down into it is its priority at its own gate, and the two lines that meet there, which are below it
    /// everywhere else. Each step finds out on which side of a gate the place is, and so leaves out a half of a half.
    fn find_bridge(&mut self, node: usize) {
        let Gate { lower: mut low, upper: mut high, .. } = self.gates[node];
        let rise = self.nodes[node].split.0.alpha;
        let ends = loop {
            // A half that is overtaken before or after all time leaves nothing to choose.
            low = self.skip(low);
            high = self.skip(high);
            match (low.node(), high.node()) {
                (None, None) => break (self.leaves[low.leaf()].0, self.leaves[high.leaf()].0),
                (None, Some(other)) => {
                    let gate = self.gates[other];
                    let line = self.leaves[low.leaf()].0;
                    let is_before = line.at(gate.x) <= self.nodes[other].y;
                    high = if is_before { gate.lower } else { gate.upper };
                }
                (Some(one), None) => {
                    let gate = self.gates[one];
                    let line = self.leaves[high.leaf()].0;
                    let is_before = line.at(gate.x) >= self.nodes[one].y;
                    low = if is_before { gate.lower } else { gate.upper };
                }
                (Some(one), Some(other)) => {
                    let (gate, other_gate) = (self.gates[one], self.gates[other]);
                    let ((x, y), (other_x, other_y)) =
                        ((gate.x, self.nodes[one].y), (other_gate.x, self.nodes[other].y));
                    let (ends, other_ends) = (self.nodes[one].ends, self.nodes[other].ends);
                    if x <= other_x {
                        if other_ends.0.at(x) >= y {
                            (low, high) = (gate.lower, other_gate.lower);
                        } else if ends.1.at(other_x) > other_y {
                            (low, high) = (gate.upper, other_gate.upper);
                        } else if other_y - y <= rise * (other_x - x) {
                            // The upper half falls at least that fast towards x: there it is still below.
                            low = gate.upper;
                        } else {
                            // The lower half rises at most that fast towards the other x: there it is below.
                            high = other_gate.lower;
                        }
                    } else {
                        // At least one of the two holds, but for rounding.
                        let is_after = ends.0.at(other_x) > other_y;
                        if other_ends.1.at(x) >= y || !is_after {
                            low = gate.lower;
                        }
                        if is_after {
                            high = other_gate.upper;
                        }
                    }
                }
            }
        };
        let x = overtakes(ends.0, ends.1);
        self.gates[node].x = x;
        (self.nodes[node].y, self.nodes[node].ends) = (ends.1.at(x), ends);
    }

    /// Goes down where one half is the other's superior for all time.
    #[inline]
    fn skip(&self, mut at: Child) -> Child {
        while let Some(node) = at.node() {
            let gate = &self.gates[node];
            if gate.x.is_finite() {
                break;
            }
            at = if gate.x < 0.0 { gate.upper } else { gate.lower };
        }
        at
    }
}

/// Where a line overtakes another that rises less fast; before all time if it rises as fast, since it is above then.
#[inline]
fn overtakes(low: Point, high: Point) -> f64 {
    let rise = high.alpha - low.alpha;
    if rise > 0.0 { (low.beta - high.beta) / rise } else { f64::NEG_INFINITY }
}

/// The order of the tree. Of equal points the one with the least key is the last, and so the first to be found.
#[inline]
fn before<K: Ord>(one: (Point, K), other: (Point, K)) -> bool {
    let key = |(point, key): (Point, K)| (point.alpha, point.beta, Reverse(key));
    key(one) < key(other)
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to a queue, in small numbers that meet often.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(i32, i32),
        Remove(usize),
        Query(f64),
        TakeBest(f64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (-20i32..20, -20i32..20).prop_map(|(alpha, beta)| Step::Insert(alpha, beta)),
            2 => any::<usize>().prop_map(Step::Remove),
            4 => (0.0..30.0).prop_map(Step::Query),
            2 => (0.0..3.0).prop_map(Step::TakeBest),
        ]
    }

    /// Its shape is as it should be, and every node overtakes where it says.
    fn check(queue: &HullQueue<u64>) {
        fn walk(queue: &HullQueue<u64>, at: Child) -> Vec<(Point, u64)> {
            let Some(node) = at.node() else { return vec![queue.leaves[at.leaf()]] };
            let (gate, rest) = (queue.gates[node], queue.nodes[node]);
            let [mut lower, upper] = [gate.lower, gate.upper].map(|child| walk(queue, child));
            assert_eq!(rest.counts, (lower.len() as u32, upper.len() as u32));
            let (least, most) = (lower.len().min(upper.len()), lower.len().max(upper.len()));
            assert!(most <= HEAVY as usize * least, "{least} and {most} members");
            let split = rest.split;
            assert!(lower.iter().all(|&one| before(one, split)));
            assert!(upper.iter().all(|&one| !before(one, split)));
            if gate.x.is_finite() {
                let most = |members: &[(Point, u64)]| {
                    members.iter().map(|(point, _)| point.at(gate.x)).fold(f64::MIN, f64::max)
                };
                for found in [most(&lower), most(&upper), rest.ends.0.at(gate.x)] {
                    assert!((found - rest.y).abs() < 1e-9 * (1.0 + rest.y.abs()));
                }
            }
            lower.extend(upper);
            lower
        }
        let members = queue.root.map_or_else(Vec::new, |root| walk(queue, root));
        assert_eq!(members.len(), queue.len());
    }

    /// What a scan finds: the highest priority, to rounding.
    fn agrees(queue: &HullQueue<u64>, plain: &[(Point, u64)], x: f64) {
        let Some((point, key)) = queue.best(x) else { return assert!(plain.is_empty()) };
        let highest = plain.iter().map(|(point, _)| point.at(x)).fold(f64::MIN, f64::max);
        assert!((point.at(x) - highest).abs() <= 1e-12 * (1.0 + highest.abs()), "{x}");
        let equal = plain.iter().filter(|(other, _)| *other == point);
        assert_eq!(equal.map(|&(_, key)| key).min(), Some(key), "the least key of equal points");
    }

    proptest! {
        #[test]
        fn agrees_with_a_scan(steps in prop::collection::vec(step(), 1..300)) {
            let (mut queue, mut plain) = (HullQueue::default(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                // Not in the order of arrival, so that ties are not met by chance.
                let key = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                match step {
                    Step::Insert(alpha, beta) => {
                        let point = Point { alpha: f64::from(alpha), beta: f64::from(beta) };
                        queue.insert(point, key);
                        plain.push((point, key));
                    }
                    Step::Remove(pick) if !plain.is_empty() => {
                        let (point, key) = plain.swap_remove(pick % plain.len());
                        prop_assert!(queue.remove(point, key));
                        prop_assert!(!queue.remove(point, key));
                    }
                    Step::TakeBest(x) => if let Some((point, key)) = queue.best(x) {
                        agrees(&queue, &plain, x);
                        prop_assert!(queue.remove(point, key));
                        plain.retain(|&(_, other)| other != key);
                    },
                    Step::Query(x) => agrees(&queue, &plain, x),
                    Step::Remove(_) => {}
                }
                check(&queue);
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.is_empty(), plain.is_empty());
            }
        }

        #[test]
        fn agrees_on_points_of_any_size(
            points in prop::collection::vec((-1e9..1e9f64, -1e9..1e9f64), 1..200),
            lines in prop::collection::vec(0.0..1e3f64, 20),
        ) {
            let (mut queue, mut plain) = (HullQueue::default(), Vec::new());
            for (key, (alpha, beta)) in (0..).zip(points) {
                queue.insert(Point { alpha, beta }, key);
                plain.push((Point { alpha, beta }, key));
            }
            lines.iter().for_each(|&x| agrees(&queue, &plain, x));
        }
    }

    /// All on a circle: every one is on the hull, which is the worst that can be.
    #[test]
    fn a_hull_of_all_members_is_taken_off_in_order() {
        let mut queue = HullQueue::default();
        let on_circle = |at: u64| {
            let angle = std::f64::consts::FRAC_PI_2 * (at as f64 + 0.5) / 1000.0;
            Point { alpha: angle.sin(), beta: angle.cos() }
        };
        // In an order that is neither up nor down.
        (0..1000).map(|at| at * 367 % 1000).for_each(|at| queue.insert(on_circle(at), at));
        check(&queue);
        for at in 0..1000 {
            let x = on_circle(at).alpha / on_circle(at).beta;
            assert_eq!(queue.best(x).map(|(_, key)| key), Some(at));
        }
        for at in (0..1000).rev() {
            let (point, key) = queue.best(1e9).unwrap();
            assert_eq!(key, at, "late, whoever rises fastest is first");
            assert!(queue.remove(point, key));
        }
        assert!(queue.is_empty());
    }

    /// As in Orloj: whoever comes later has the later deadline.
    #[test]
    fn members_that_come_in_order_keep_the_tree_in_balance() {
        let mut queue = HullQueue::default();
        for at in 0..5000u64 {
            queue.insert(Point { alpha: (-(at as f64) / 1000.0).exp(), beta: 0.0 }, at);
            if at >= 1000 {
                let (point, key) = queue.best(1.0).unwrap();
                assert_eq!(key, at - 1000);
                assert!(queue.remove(point, key));
            }
            if at % 100 == 0 {
                check(&queue);
            }
        }
    }
}
