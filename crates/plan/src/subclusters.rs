//! Models into sub-clusters: alike in load and in memory, within limits, and with few of them moved
//! (Symphony 4.4 and appendix A).
//!
//! The heaviest first, each to where there is most room. Then cluster by cluster, the farthest from
//! the average first: one exchange with some other cluster brings it as near as one exchange can,
//! and the other is seen to later. An exchange is a model for a model, or a model for nothing, so
//! that it moves two at most: `k` clusters are balanced by about `2 k` moves, which is why the same
//! steps serve where only a few models may be moved.

/// What a model asks of its sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// Requests a second, or whatever else is to be shared evenly.
    pub load: f64,
    /// Bytes that it takes on every executor of its sub-cluster.
    pub memory: u64,
    /// Bytes that it needs while it runs: of a sub-cluster's models, only the largest such need
    /// counts.
    pub workspace: u64,
}

/// What a sub-cluster can take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of all its models' loads.
    pub load: f64,
    /// Of all its models' memory, and the largest workspace.
    pub memory: u64,
}

/// Where models are, and how many may be elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// By model; `None`, where it is new. A place that there no longer is counts as none.
    pub clusters: &'a [Option<usize>],
    /// How many models may be moved; new ones do not count.
    pub moves: usize,
}

/// A model for which no place was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Its place in the list of models.
    pub item: usize,
}

/// The difference between the most and the least, over the average: of load and of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Imbalance {
    /// Of the loads.
    pub load: f64,
    /// Of the memory.
    pub memory: f64,
}

impl Limits {
    /// As much as anybody wants.
    pub const NONE: Self = Self { load: f64::INFINITY, memory: u64::MAX };
}

/// Puts models into sub-clusters: the cluster of each. If `before` says where they were, no more of
/// them are moved than may be, except out of a cluster that is beyond its limits.
pub fn partition(
    items: &[Item],
    clusters: usize,
    limits: Limits,
    before: Option<Before<'_>>,
) -> Result<Vec<usize>, NoRoom> {
    assert!(clusters > 0 || items.is_empty(), "models need a cluster");
    let mut balance = Balance::new(items, clusters, limits);
    let mut moves = Moves { before: vec![None; items.len()], most: usize::MAX, moved: 0 };
    if let Some(before) = before {
        assert_eq!(before.clusters.len(), items.len(), "every model is somewhere or is new");
        let still = |cluster: &Option<usize>| cluster.filter(|&cluster| cluster < clusters);
        moves.before = before.clusters.iter().map(still).collect();
        moves.most = before.moves;
        for (item, cluster) in moves.before.iter().enumerate() {
            cluster.iter().for_each(|&cluster| balance.put(item, cluster));
        }
        balance.relieve();
    }
    balance.put_heaviest_first()?;
    let away = |(item, &cluster): (usize, &usize)| moves.is_away(item, cluster);
    moves.moved = balance.cluster_of.iter().enumerate().filter(|&each| away(each)).count();
    let mut best: Option<(f64, Vec<usize>)> = None;
    for weight in WEIGHTS {
        let (mut tried, mut left) = (balance.clone(), moves.clone());
        tried.exchange(weight, &mut left);
        let spread = tried.spread();
        if best.as_ref().is_none_or(|(least, _)| spread < *least) {
            best = Some((spread, tried.cluster_of));
        }
        if spread <= ENOUGH {
            break;
        }
    }
    Ok(best.map_or_else(Vec::new, |(_, cluster_of)| cluster_of))
}

/// How far a partition is from an even one.
pub fn imbalance(items: &[Item], clusters: usize, cluster_of: &[usize]) -> Imbalance {
    let (mut loads, mut memory) = (vec![0.0; clusters], vec![0.0; clusters]);
    for (item, &cluster) in items.iter().zip(cluster_of) {
        loads[cluster] += item.load;
        memory[cluster] += item.memory as f64;
    }
    Imbalance { load: spread(&loads), memory: spread(&memory) }
}

fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let average = values.iter().sum::<f64>() / values.len() as f64;
    if average > 0.0 { (most - least) / average } else { 0.0 }
}

/// Load and memory, each over a cluster's average.
type Size = [f64; 2];

/// A model in a cluster.
#[derive(Clone, Copy, Debug)]
struct Member {
    item: usize,
    size: Size,
}

/// Models on their way into clusters.
#[derive(Clone)]
struct Balance<'a> {
    items: &'a [Item],
    sizes: Vec<Size>,
    limits: Limits,
    /// By model; `NOWHERE`, as long as it has none.
    cluster_of: Vec<usize>,
    /// By cluster, in the order of their loads.
    members: Vec<Vec<Member>>,
    /// By cluster: how far it is above the average.
    excess: Vec<Size>,
}

const NOWHERE: usize = usize::MAX;
/// A cluster this near to the average is left alone.
const NEAR: f64 = 2e-4;
/// A difference between the most and the least that nobody would see, over the average.
const ENOUGH: f64 = 8e-4;
/// How much more it counts that the farthest cluster comes near than that the other one does not go
/// away. Which is best differs: they are tried one after the other until the outcome is good
/// enough.
const WEIGHTS: [f64; 4] = [30.0, 10.0, 100.0, 3.0];
/// After so many exchanges for each cluster it is well enough: the last ones gain next to nothing.
const EXCHANGES: usize = 50;

/// A model for a model, either of which may be missing.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    other: usize,
    given: Option<usize>,
    taken: Option<usize>,
}

impl<'a> Balance<'a> {
    fn new(items: &'a [Item], clusters: usize, limits: Limits) -> Self {
        let average = |value: fn(&Item) -> f64| {
            let sum: f64 = items.iter().map(value).sum();
            if sum > 0.0 { sum / clusters as f64 } else { 1.0 }
        };
        let load = average(|item| item.load);
        let memory = average(|item| item.memory as f64);
        let size = |item: &Item| [item.load / load, item.memory as f64 / memory];
        Self {
            items,
            sizes: items.iter().map(size).collect(),
            limits,
            cluster_of: vec![NOWHERE; items.len()],
            members: vec![Vec::new(); clusters],
            excess: vec![[-1.0; 2]; clusters],
        }
    }

    fn put(&mut self, item: usize, cluster: usize) {
        let size = self.sizes[item];
        self.cluster_of[item] = cluster;
        let members = &mut self.members[cluster];
        let place = members.partition_point(|member| member.size[0] < size[0]);
        members.insert(place, Member { item, size });
        self.excess[cluster] = plus(self.excess[cluster], size);
    }

    fn take(&mut self, item: usize) {
        let cluster = std::mem::replace(&mut self.cluster_of[item], NOWHERE);
        let members = &mut self.members[cluster];
        let place = members.iter().position(|member| member.item == item);
        members.remove(place.expect("a model is in its cluster"));
        self.excess[cluster] = minus(self.excess[cluster], self.sizes[item]);
    }

    /// Whether a cluster is within its limits without one model and with another.
    fn fits(&self, cluster: usize, without: Option<usize>, with: Option<usize>) -> bool {
        if self.limits == Limits::NONE {
            return true;
        }
        let stay = self.members[cluster].iter().map(|member| member.item);
        let stay = stay.filter(|&item| Some(item) != without).chain(with);
        let (mut load, mut memory, mut workspace) = (0.0, 0_u64, 0);
        for item in stay.map(|item| &self.items[item]) {
            load += item.load;
            memory = memory.saturating_add(item.memory);
            workspace = workspace.max(item.workspace);
        }
        load <= self.limits.load && memory.saturating_add(workspace) <= self.limits.memory
    }

    /// Takes models out of clusters that are beyond their limits: the smallest that alone is
    /// enough, or else the largest.
    fn relieve(&mut self) {
        for cluster in 0..self.members.len() {
            while !self.fits(cluster, None, None) {
                let mut members: Vec<usize> =
                    self.members[cluster].iter().map(|member| member.item).collect();
                members.sort_by(|&one, &other| self.by_size(one, other));
                let enough = members.iter().find(|&&item| self.fits(cluster, Some(item), None));
                let item = enough.or(members.last()).copied();
                self.take(item.expect("an empty cluster is within its limits"));
            }
        }
    }

    fn by_size(&self, one: usize, other: usize) -> std::cmp::Ordering {
        let size = |item: usize| self.sizes[item][0].max(self.sizes[item][1]);
        size(one).total_cmp(&size(other)).then(one.cmp(&other))
    }

    /// Puts those that are nowhere where most is missing of what they bring.
    fn put_heaviest_first(&mut self) -> Result<(), NoRoom> {
        let nowhere = |&item: &usize| self.cluster_of[item] == NOWHERE;
        let mut open: Vec<usize> = (0..self.items.len()).filter(nowhere).collect();
        open.sort_by(|&one, &other| self.by_size(other, one));
        for item in open {
            let size = self.sizes[item];
            let fitting = (0..self.members.len()).filter(|&at| self.fits(at, None, Some(item)));
            let missing = |&at: &usize| dot(self.excess[at], size);
            let most = fitting.min_by(|one, other| missing(one).total_cmp(&missing(other)));
            self.put(item, most.ok_or(NoRoom { item })?);
        }
        Ok(())
    }

    /// Brings clusters near to the average, with at most so many models away from where they were.
    fn exchange(&mut self, weight: f64, left: &mut Moves) {
        let clusters = self.members.len();
        // First each cluster is brought to the average at the expense of those that come after it.
        let mut open: Vec<usize> = (0..clusters).collect();
        for _ in 0..EXCHANGES * clusters {
            open.retain(|&at| norm(self.excess[at]) > NEAR * NEAR);
            let farthest = open.iter().copied().max_by(|&one, &other| self.by_excess(one, other));
            let Some(farthest) = farthest else { break };
            match self.best(farthest, &open, weight, left) {
                Some(exchange) => self.apply(farthest, exchange, left),
                None => open.retain(|&at| at != farthest),
            }
        }
        // Then whatever lowers the sum of squares.
        let all: Vec<usize> = (0..clusters).collect();
        let mut open = all.clone();
        for _ in 0..EXCHANGES * clusters {
            let farthest = open.iter().copied().max_by(|&one, &other| self.by_excess(one, other));
            let Some(farthest) = farthest.filter(|_| self.spread() > ENOUGH) else { break };
            match self.best(farthest, &all, 1.0, left) {
                Some(exchange) => {
                    self.apply(farthest, exchange, left);
                    open.clone_from(&all);
                }
                None => open.retain(|&at| at != farthest),
            }
        }
    }

    /// The larger of the differences between the most and the least, in load and in memory.
    fn spread(&self) -> f64 {
        let of = |dimension: usize| {
            let values = self.excess.iter().map(|excess| excess[dimension]);
            values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
        };
        of(0).max(of(1))
    }

    fn by_excess(&self, one: usize, other: usize) -> std::cmp::Ordering {
        norm(self.excess[one]).total_cmp(&norm(self.excess[other])).then(other.cmp(&one))
    }

    /// The exchange after which a cluster and the other one are nearest to the average; the first
    /// counts `weight` times.
    fn best(
        &self,
        cluster: usize,
        others: &[usize],
        weight: f64,
        left: &Moves,
    ) -> Option<Exchange> {
        let mut best: Option<(f64, Exchange)> = None;
        let given_away = self.movable(cluster, left);
        for &other in others.iter().filter(|&&other| other != cluster) {
            // What is lost by an exchange that moves `m` is `weight |excess - m|^2 + |others +
            // m|^2`: the square of the distance of `m` to this point, but for a factor and what
            // nothing would cost.
            let (excess, others) = (self.excess[cluster], self.excess[other]);
            let factor = weight + 1.0;
            let wanted = [0, 1].map(|at| (weight * excess[at] - others[at]) / factor);
            let nothing = norm(wanted);
            let least = best.map_or(-1e-12, |(gain, _)| gain);
            let mut nearest = nothing + least / factor;
            if nearest <= 0.0 {
                continue;
            }
            let taken_from = self.movable(other, left);
            for given in &given_away {
                // Those whose load alone is too far away are passed over.
                let (point, reach) = (minus(given.size, wanted), nearest.sqrt());
                let from = taken_from.partition_point(|taken| taken.size[0] < point[0] - reach);
                for taken in &taken_from[from..] {
                    if taken.size[0] > point[0] + reach {
                        break;
                    }
                    let distance = norm(minus(point, taken.size));
                    if distance >= nearest {
                        continue;
                    }
                    let item = |member: &Member| Some(member.item).filter(|&item| item != NOWHERE);
                    let exchange = Exchange { other, given: item(given), taken: item(taken) };
                    let Exchange { given, taken, .. } = exchange;
                    let fits = self.fits(cluster, given, taken) && self.fits(other, taken, given);
                    if fits && left.after(cluster, exchange) <= left.most {
                        nearest = distance;
                        best = Some((factor * (distance - nothing), exchange));
                    }
                }
            }
        }
        best.map(|(_, exchange)| exchange)
    }

    /// Whom a cluster may give away, and nobody: where no more may be moved, only those that were
    /// moved already.
    fn movable(&self, cluster: usize, left: &Moves) -> Vec<Member> {
        let all = left.moved < left.most;
        let members = self.members[cluster].iter().copied();
        let movable = members.filter(|member| all || left.is_away(member.item, cluster));
        [Member { item: NOWHERE, size: [0.0; 2] }].into_iter().chain(movable).collect()
    }

    fn apply(&mut self, cluster: usize, exchange: Exchange, left: &mut Moves) {
        left.moved = left.after(cluster, exchange);
        if let Some(item) = exchange.given {
            self.take(item);
            self.put(item, exchange.other);
        }
        if let Some(item) = exchange.taken {
            self.take(item);
            self.put(item, cluster);
        }
    }
}

/// How many models may be away from where they were.
#[derive(Clone)]
struct Moves {
    before: Vec<Option<usize>>,
    most: usize,
    moved: usize,
}

impl Moves {
    fn is_away(&self, item: usize, cluster: usize) -> bool {
        self.before[item].is_some_and(|before| before != cluster)
    }

    /// How many there are after an exchange.
    fn after(&self, cluster: usize, Exchange { other, given, taken }: Exchange) -> usize {
        let mut moved = self.moved;
        let moves = given.map(|item| (item, cluster, other)).into_iter();
        for (item, from, to) in moves.chain(taken.map(|item| (item, other, cluster))) {
            moved += usize::from(self.is_away(item, to));
            moved -= usize::from(self.is_away(item, from));
        }
        moved
    }
}

fn plus(one: Size, other: Size) -> Size {
    [one[0] + other[0], one[1] + other[1]]
}

fn minus(one: Size, other: Size) -> Size {
    [one[0] - other[0], one[1] - other[1]]
}

fn dot(one: Size, other: Size) -> f64 {
    one[0] * other[0] + one[1] * other[1]
}

fn norm(size: Size) -> f64 {
    dot(size, size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const MB: u64 = 1_000_000;

    fn draw(random: &mut Pcg64Mcg) -> f64 {
        -(1.0 - random.random::<f64>()).ln()
    }

    /// Exponential loads, and memory of one of some kinds of models.
    fn models(number: usize, seed: u64) -> Vec<Item> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let memory = [14, 23, 31, 44, 58, 98, 102, 178, 232, 343, 528].map(|mb| mb * MB);
        let mut model = || Item {
            load: draw(&mut random),
            memory: memory[random.random_range(0..memory.len())],
            workspace: 50 * MB,
        };
        (0..number).map(|_| model()).collect()
    }

    #[test]
    fn eight_hundred_models_are_even_in_twenty_clusters() {
        let items = models(800, 1);
        let cluster_of = partition(&items, 20, Limits::NONE, None).unwrap();
        let Imbalance { load, memory } = imbalance(&items, 20, &cluster_of);
        assert!(load <= 1e-3 && memory <= 1e-3, "{load} {memory}");
        assert_eq!(cluster_of, partition(&items, 20, Limits::NONE, None).unwrap());
    }

    #[test]
    fn few_moves_are_enough_when_some_loads_have_changed() {
        let mut items = models(800, 2);
        let cluster_of = partition(&items, 20, Limits::NONE, None).unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(3);
        items.iter_mut().step_by(10).for_each(|item| item.load = draw(&mut random));
        let clusters: Vec<_> = cluster_of.iter().copied().map(Some).collect();
        let before = Before { clusters: &clusters, moves: 40 };
        let after = partition(&items, 20, Limits::NONE, Some(before)).unwrap();
        let moved = cluster_of.iter().zip(&after).filter(|(one, other)| one != other).count();
        let Imbalance { load, memory } = imbalance(&items, 20, &after);
        assert!(moved <= 40 && load <= 5e-3 && memory <= 5e-3, "{moved} {load} {memory}");
        // With nothing changed and nothing allowed, nothing moves.
        let before = Before { clusters: &clusters, moves: 0 };
        assert_eq!(partition(&items, 20, Limits::NONE, Some(before)).unwrap(), cluster_of);
    }

    #[test]
    fn a_model_that_fits_nowhere_is_named() {
        let item = |memory| Item { load: 1.0, memory, workspace: 10 };
        let limits = Limits { load: 2.0, memory: 100 };
        let items = [item(50), item(91), item(40)];
        assert_eq!(partition(&items, 2, limits, None), Err(NoRoom { item: 1 }));
        let items = [item(50), item(90), item(40)];
        assert_eq!(partition(&items, 2, limits, None).unwrap(), [1, 0, 1]);
    }

    #[test]
    fn clusters_beyond_their_limits_are_relieved_whatever_may_be_moved() {
        let items = [Item { load: 1.0, memory: 0, workspace: 0 }; 4];
        let clusters = [Some(0), Some(0), Some(0), Some(7)];
        let before = Before { clusters: &clusters, moves: 0 };
        let limits = Limits { load: 2.0, memory: 1 };
        let cluster_of = partition(&items, 2, limits, Some(before)).unwrap();
        assert_eq!(cluster_of.iter().sum::<usize>(), 2, "{cluster_of:?}");
    }

    proptest! {
        #[test]
        fn limits_and_moves_are_kept(
            seed in any::<u64>(),
            number in 0_usize..60,
            clusters in 1_usize..8,
            room in 0.9..2.0_f64,
            moves in 0_usize..20,
        ) {
            let items = models(number, seed);
            let share = |total: f64| room * total / clusters as f64;
            let limits = Limits {
                load: share(items.iter().map(|item| item.load).sum()),
                memory: share(items.iter().map(|item| item.memory as f64).sum()) as u64 + 50 * MB,
            };
            let within = |cluster_of: &[usize]| (0..clusters).all(|cluster| {
                let here = || items.iter().zip(cluster_of).filter(|&(_, &at)| at == cluster);
                let load: f64 = here().map(|(item, _)| item.load).sum();
                let memory: u64 = here().map(|(item, _)| item.memory).sum();
                let workspace = here().map(|(item, _)| item.workspace).max().unwrap_or(0);
                load <= limits.load * (1.0 + 1e-9) && memory + workspace <= limits.memory
            });
            if let Ok(cluster_of) = partition(&items, clusters, limits, None) {
                prop_assert!(within(&cluster_of));
                let mut changed = items.clone();
                changed.iter_mut().step_by(3).for_each(|item| item.load *= 0.5);
                let before: Vec<_> = cluster_of.iter().copied().map(Some).collect();
                let before = Before { clusters: &before, moves };
                let after = partition(&changed, clusters, limits, Some(before)).unwrap();
                let moved = cluster_of.iter().zip(&after).filter(|(a, b)| a != b).count();
                prop_assert!(moved <= moves);
            }
        }
    }
}
