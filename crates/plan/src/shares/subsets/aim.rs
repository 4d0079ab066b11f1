//! What a choice of flexible demands asks for, and the best ways to get there.

use super::super::scene::Scene;

/// Sets of demands, as bits.
pub(super) type Set = u32;

/// How much is served of each flexible demand.
pub(super) type Served = [f64; FLEXIBLE_MAX];

/// How many demands may be flexible at once.
pub(super) const FLEXIBLE_MAX: usize = 4;
/// Of the ways to serve a set with some of the flexible demands, at most so many are kept, those
/// with the most load: the time grows with the cube of it.
const FRONT_MAX: usize = 100;
/// Rates and loads that differ by less are the same.
pub(super) const CLOSE: f64 = 1e-9;

/// What is asked for.
pub(super) struct Aim<'a> {
    /// Demands that may be split.
    pub(super) flexible: &'a [usize],
    /// What is wanted of each.
    pub(super) wanted: Served,
    /// What a request of each costs.
    cost: Served,
    /// Demands that are not split.
    pub(super) others: Set,
    /// By set of the others.
    loads: Vec<f64>,
    /// What is left of each flexible demand once it has shares of its own.
    pub(super) rests: [Vec<f64>; FLEXIBLE_MAX],
}

impl<'a> Aim<'a> {
    pub(super) fn new(scene: &Scene, flexible: &'a [usize]) -> Self {
        let count = scene.items.len();
        let of = |value: &dyn Fn(usize) -> f64| -> Served {
            std::array::from_fn(|at| flexible.get(at).map_or(0.0, |&item| value(item)))
        };
        let others =
            ((1_u32 << count) - 1) & !flexible.iter().fold(0, |set, &item| set | 1 << item);
        let load = |set| members(set).map(|item| scene.items[item].load()).sum();
        Self {
            flexible,
            wanted: of(&|item| scene.items[item].rate),
            cost: of(&|item| scene.items[item].cost),
            others,
            loads: (0..=others).map(load).collect(),
            rests: std::array::from_fn(|at| {
                flexible.get(at).map_or_else(Vec::new, |&item| rests(scene, item))
            }),
        }
    }

    /// The GPUs that would be used up if they were a fluid.
    pub(super) fn load(&self, set: Set, served: &Served) -> f64 {
        let flexible = (0..FLEXIBLE_MAX).map(|at| served[at] * self.cost[at]);
        self.loads[set as usize] + flexible.sum::<f64>()
    }

    /// What all demands would use up.
    pub(super) fn whole_load(&self) -> f64 {
        self.load(self.others, &self.wanted)
    }

    pub(super) fn plus(&self, a: &Served, b: &Served) -> Served {
        std::array::from_fn(|at| (a[at] + b[at]).min(self.wanted[at]))
    }

    pub(super) fn is_met(&self, a: &Served, b: &Served) -> bool {
        (0..FLEXIBLE_MAX).all(|at| a[at] + b[at] >= self.wanted[at] * (1.0 - CLOSE))
    }

    /// Guests of a use as demands.
    pub(super) fn guests(&self, used: &Use) -> impl Iterator<Item = (usize, usize)> {
        let chosen = move |(at, _): &(usize, &usize)| used.guests >> at & 1 == 1;
        self.flexible.iter().enumerate().filter(chosen).map(|(at, &item)| (at, item))
    }

    /// Everybody on a share.
    pub(super) fn on(&self, used: &Use) -> Set {
        self.guests(used).fold(used.set, |set, (_, item)| set | 1 << item)
    }

    /// Adds a point, and leaves out the lightest if there are by far too many.
    pub(super) fn insert<T>(&self, set: Set, front: &mut Vec<Point<T>>, point: Point<T>) {
        insert(front, point);
        if front.len() > 2 * FRONT_MAX {
            self.thin(set, front, 0.0);
        }
    }

    /// Leaves out what is too little: the other GPUs cannot serve so much more than the best of
    /// them does. Then the lightest, if there are too many.
    pub(super) fn thin<T>(&self, set: Set, front: &mut Vec<Point<T>>, least: f64) {
        front.retain(|point| self.load(set, &point.served) >= least - CLOSE);
        if front.len() > FRONT_MAX {
            let load = |point: &Point<T>| self.load(set, &point.served);
            front.sort_by(|a, b| load(b).total_cmp(&load(a)));
            front.truncate(FRONT_MAX);
        }
    }
}

/// How a share is used: all of a set, and some of the flexible demands, by their places among
/// these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) size: u8,
    pub(super) set: Set,
    pub(super) guests: u8,
}

/// How much of the flexible demands is served, and by what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point<T> {
    pub(super) served: Served,
    pub(super) by: T,
}

/// Adds a point, unless another one is at least as good; takes those away that it makes pointless.
pub(super) fn insert<T>(front: &mut Vec<Point<T>>, point: Point<T>) {
    let beats = |a: &Served, b: &Served| (0..FLEXIBLE_MAX).all(|at| a[at] >= b[at] - CLOSE);
    if front.iter().any(|other| beats(&other.served, &point.served)) {
        return;
    }
    front.retain(|other| !beats(&point.served, &other.served));
    front.push(point);
}

/// What is left of a demand beside one share of its own, of any size, and as many whole GPUs as it
/// fills.
fn rests(scene: &Scene, item: usize) -> Vec<f64> {
    let (wanted, loudest) = (scene.items[item].rate, scene.items.len());
    let full = scene.room(scene.whole(), 0, &[], item);
    let shares = (0..scene.whole()).flat_map(|size| [(size, 0), (size, loudest)]);
    let own = shares.map(|(size, level)| scene.room(size, level, &[], item)).chain([0.0]);
    own.map(|own| (wanted - own).rem_euclid(full)).filter(|&rest| rest > wanted * CLOSE).collect()
}

/// The members of a set, ascending.
pub(super) fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..Set::BITS as usize)
        .take((Set::BITS - set.leading_zeros()) as usize)
        .filter(move |item| set >> item & 1 == 1)
}

/// All subsets of a set, with the empty one and itself.
pub(super) fn subsets(set: Set) -> impl Iterator<Item = Set> {
    let mut next = Some(set);
    std::iter::from_fn(move || {
        let now = next?;
        next = (now != 0).then(|| (now - 1) & set);
        Some(now)
    })
}
