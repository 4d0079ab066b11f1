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
    fn walk(queue: &HullQueue<u64>, at: Child) -> Vec<Point> {
        let Some(node) = at.node() else { return vec![queue.leaves[at.leaf()].point] };
        let (gate, rest) = (queue.gates[node], queue.nodes[node]);
        let [mut lower, upper] = [gate.lower, gate.upper].map(|child| walk(queue, child));
        assert_eq!(rest.counts, (lower.len() as u32, upper.len() as u32));
        let (least, most) = (lower.len().min(upper.len()), lower.len().max(upper.len()));
        assert!(most <= HEAVY as usize * least, "{least} and {most} points");
        let split = rest.split;
        assert!(lower.iter().all(|one| one.is_before(&split)));
        assert!(upper.iter().all(|one| !one.is_before(&split)));
        if gate.x.is_finite() {
            let (low, high) = rest.ends;
            let most = |points: &[Point], end: &Point| {
                points.iter().map(|point| point.above(end, gate.x)).fold(f64::MIN, f64::max)
            };
            for above in [most(&lower, &low), most(&upper, &high), low.above(&high, gate.x)] {
                assert!(above.abs() < 1e-9, "{above} at {}", gate.x);
            }
        }
        lower.extend(upper);
        lower
    }
    let points = queue.root.map_or(0, |root| walk(queue, root).len());
    assert_eq!(points, queue.leaves.len() - queue.free_leaves.len());
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

    /// Requests of a few kinds whose deadlines are a nanosecond apart: lines that are nearly the
    /// same.
    #[test]
    fn agrees_on_lines_that_are_nearly_the_same(
        steps in prop::collection::vec((0u8..4, 0u8..30, 0u8..5, any::<bool>()), 1..200),
    ) {
        let (mut queue, mut plain) = (HullQueue::default(), Vec::new());
        for (key, (kind, apart, level, takes)) in (0..).zip(steps) {
            let alpha = f64::from(kind) / 3.0 + f64::from(apart) * 1e-16;
            let point = Point { alpha, beta: f64::from(level) / 7.0 };
            queue.insert(point, key);
            plain.push((point, key));
            let x = 1.0 + f64::from(apart) / 10.0;
            agrees(&queue, &plain, x);
            if takes && let Some((point, key)) = queue.best(x) {
                prop_assert!(queue.remove(point, key));
                plain.retain(|&(_, other)| other != key);
            }
            check(&queue);
        }
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
