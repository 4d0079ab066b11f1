//! From where models are to where a plan wants them, in steps: so many moves at a time, and at
//! every moment enough executors for the models that a pool has. Pure.

use fermata_plan::{Plan, executors_for};

/// How things are.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// How many pools there are.
    pub(super) pools: usize,
    /// The pool of each model.
    pub(super) homes: Vec<usize>,
    /// Bytes that each model takes.
    pub(super) memory: Vec<u64>,
}

/// What a plan wants.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Executors of each of its pools.
    sizes: Vec<usize>,
    /// In which of its pools each model is. What is not in the plan stays where it is.
    homes: Vec<Option<usize>>,
    /// GPUs that each model keeps busy.
    pub(super) loads: Vec<f64>,
}

/// What is done now. Pools beyond those that there are, are new.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// Executors that each pool needs as models are, and when the moves are done.
    pub(super) before: Vec<usize>,
    pub(super) after: Vec<usize>,
    /// Which model goes to which pool.
    pub(super) moves: Vec<(usize, usize)>,
    /// How many moves are left for later.
    pub(super) left: usize,
}

/// Fewer GPUs than these, or than this part of all, are not worth a move: rates are never quite the
/// same.
const SAVED_MIN: usize = 2;
const SAVED_PART: usize = 20;

/// At most so many models move at a time: a twentieth of them, and a few always.
pub(super) fn moves_max(models: usize) -> usize {
    const PART: usize = 20;
    const ALWAYS: usize = 4;
    (models / PART).max(ALWAYS)
}

impl Wanted {
    /// What a plan for so many models wants.
    pub(super) fn new(plan: &Plan, models: usize) -> Self {
        let (mut homes, mut loads) = (vec![None; models], vec![0.0; models]);
        let mut most = vec![0.0; models];
        for (at, pool) in plan.pools.iter().enumerate() {
            for member in &pool.members {
                loads[member.demand] += member.occupancy * pool.gpus.len() as f64;
                // One place is enough in the server: that of the largest part.
                if homes[member.demand].is_none() || member.rate > most[member.demand] {
                    (homes[member.demand], most[member.demand]) = (Some(at), member.rate);
                }
            }
        }
        Self { sizes: plan.pools.iter().map(|pool| pool.gpus.len()).collect(), homes, loads }
    }
}

/// The next step, with at most so many moves, onto GPUs of so much memory.
pub(super) fn step(layout: &Layout, wanted: &Wanted, moves_max: usize, memory: u64) -> Step {
    let places = matched(layout, wanted);
    let pools = places.iter().flatten().map(|&pool| pool + 1).max().unwrap_or(0).max(layout.pools);
    let goals: Vec<usize> = wanted
        .homes
        .iter()
        .zip(&layout.homes)
        .map(|(goal, &home)| goal.and_then(|goal| places[goal]).unwrap_or(home))
        .collect();
    let sizes = Sizes { wanted, goals: &goals, places: &places, pools };
    let before = sizes.of(&layout.homes);
    let mut homes = layout.homes.clone();
    let mut held = vec![0_u64; pools];
    for (&home, &bytes) in homes.iter().zip(&layout.memory) {
        held[home] = held[home].saturating_add(bytes);
    }
    // Those with the most to do go first; ties by place in the list.
    let mut waiting: Vec<usize> = (0..homes.len()).filter(|&at| homes[at] != goals[at]).collect();
    let (now, then): (usize, usize) = (before.iter().sum(), sizes.of(&goals).iter().sum());
    let fewer = used(&goals, pools) < used(&homes, pools);
    let saves = now >= then + SAVED_MIN.max(now / SAVED_PART);
    if !fewer && !saves && held.iter().all(|&bytes| bytes <= memory) {
        waiting.clear();
    }
    waiting.sort_by(|&a, &b| wanted.loads[b].total_cmp(&wanted.loads[a]).then(a.cmp(&b)));
    let mut moves = Vec::new();
    // One that goes may make room for another.
    while let Some(at) = waiting
        .iter()
        .position(|&model| held[goals[model]].saturating_add(layout.memory[model]) <= memory)
        .filter(|_| moves.len() < moves_max)
    {
        let model = waiting.remove(at);
        held[homes[model]] -= layout.memory[model];
        held[goals[model]] += layout.memory[model];
        homes[model] = goals[model];
        moves.push((model, goals[model]));
    }
    Step { before, after: sizes.of(&homes), moves, left: waiting.len() }
}

/// How many of the pools have models.
fn used(homes: &[usize], pools: usize) -> usize {
    (0..pools).filter(|pool| homes.contains(pool)).count()
}

/// Cuts sizes in proportion to what there is, where they are more. Who needs any has one.
pub(super) fn fit(sizes: &mut [usize], most: usize) {
    let all: usize = sizes.iter().sum();
    if all <= most {
        return;
    }
    let mut left = most;
    let mut rests = Vec::new();
    for (at, size) in sizes.iter_mut().enumerate().filter(|(_, size)| **size > 0) {
        let (share, rest) = (*size * most / all, *size * most % all);
        *size = share.max(1);
        left = left.saturating_sub(*size);
        rests.push((std::cmp::Reverse(rest), at));
    }
    rests.sort_unstable();
    rests.into_iter().take(left).for_each(|(_, at)| sizes[at] += 1);
}

/// Which pool that there is each pool of the plan becomes: that with which it has the most models
/// in common, or a new one. `None` for a pool of the plan that has no models.
fn matched(layout: &Layout, wanted: &Wanted) -> Vec<Option<usize>> {
    let mut common = vec![vec![0_usize; layout.pools]; wanted.sizes.len()];
    for (goal, &home) in wanted.homes.iter().zip(&layout.homes) {
        if let Some(goal) = goal {
            common[*goal][home] += 1;
        }
    }
    let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
    for (goal, row) in common.iter().enumerate() {
        pairs.extend(row.iter().enumerate().map(|(home, &models)| (models, goal, home)));
    }
    pairs.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut places = vec![None; wanted.sizes.len()];
    let mut taken = vec![false; layout.pools];
    let used = |goal: usize| wanted.homes.contains(&Some(goal));
    for (_, goal, home) in pairs {
        if places[goal].is_none() && !taken[home] && used(goal) {
            (places[goal], taken[home]) = (Some(home), true);
        }
    }
    let mut next = layout.pools;
    for goal in (0..places.len()).filter(|&goal| used(goal)) {
        places[goal].get_or_insert_with(|| {
            next += 1;
            next - 1
        });
    }
    places
}

struct Sizes<'a> {
    wanted: &'a Wanted,
    /// The pool of each model when all is done.
    goals: &'a [usize],
    places: &'a [Option<usize>],
    pools: usize,
}

impl Sizes<'_> {
    /// How many executors each pool needs where models are like this: as the plan says where it is
    /// done, and else what they are likely to need.
    fn of(&self, homes: &[usize]) -> Vec<usize> {
        let size = |pool: usize| {
            let mut here = homes.iter().zip(self.goals);
            let done = here.all(|(&home, &goal)| (home == pool) == (goal == pool));
            let goal = self.places.iter().position(|&place| place == Some(pool));
            if let (true, Some(goal)) = (done, goal) {
                return self.wanted.sizes[goal].max(1);
            }
            let here = homes.iter().zip(&self.wanted.loads).filter(|&(&home, _)| home == pool);
            let (models, load) = here.fold((0, 0.0), |(n, sum), (_, load)| (n + 1, sum + load));
            if models > 0 { executors_for(load) } else { 0 }
        };
        (0..self.pools).map(size).collect()
    }
}

#[cfg(test)]
mod tests {
    use fermata_core::Span;
    use fermata_plan::{Member, Pool};

    use super::*;

    /// Pools as (GPUs, models); each model has one GPU's worth to do.
    fn plan(pools: &[(usize, &[usize])]) -> Plan {
        let pool = |&(gpus, models): &(usize, &[usize])| Pool {
            kind: 0,
            gpus: (0..gpus).collect(),
            share: 100,
            round: None,
            members: models
                .iter()
                .map(|&demand| Member {
                    demand,
                    rate: 10.0,
                    batch: 1,
                    occupancy: 1.0 / gpus as f64,
                    latency: Span::ZERO,
                })
                .collect(),
        };
        Plan { pools: pools.iter().map(pool).collect(), ..Plan::default() }
    }

    fn layout(pools: usize, homes: &[usize]) -> Layout {
        Layout { pools, homes: homes.to_vec(), memory: vec![10; homes.len()] }
    }

    fn steps(layout: &Layout, plan: &Plan, most: usize, memory: u64) -> Step {
        step(layout, &Wanted::new(plan, layout.homes.len()), most, memory)
    }

    #[test]
    fn a_plan_that_changes_nothing_does_nothing_whatever_its_order() {
        let layout = layout(2, &[0, 0, 1, 1, 1]);
        let step = steps(&layout, &plan(&[(5, &[2, 3, 4]), (3, &[0, 1])]), 4, u64::MAX);
        assert_eq!(step, Step { before: vec![3, 5], after: vec![3, 5], moves: vec![], left: 0 });
    }

    #[test]
    fn the_fewest_models_move_and_never_more_than_allowed() {
        // Pool 0 splits; its larger part keeps the pool.
        let layout = layout(1, &[0; 10]);
        let wanted = plan(&[(6, &[0, 1, 2, 3]), (9, &[4, 5, 6, 7, 8, 9])]);
        let all = steps(&layout, &wanted, 10, 90);
        assert_eq!(all.moves, [(0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!((all.after, all.left), (vec![9, 6], 0));
        let some = steps(&layout, &wanted, 3, 90);
        assert_eq!((some.moves.len(), some.left), (3, 1));
        // Until it is done: whoever has the models has executors for them.
        assert_eq!(some.before, [executors_for(10.0), 0]);
        assert_eq!(some.after, [executors_for(7.0), executors_for(3.0)]);
    }

    #[test]
    fn steps_end_and_then_nothing_is_left_to_do() {
        let mut layout = layout(3, &[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
        let wanted = plan(&[(4, &[0, 1, 2, 3]), (8, &[4, 5, 6, 7, 8, 9, 10, 11])]);
        let mut rounds = 0;
        loop {
            let step = steps(&layout, &wanted, 2, u64::MAX);
            let load_of = |pool| layout.homes.iter().filter(|&&home| home == pool).count();
            assert!((0..3).all(|pool| step.before[pool] >= load_of(pool)), "{step:?}");
            if step.moves.is_empty() {
                assert_eq!((step.left, used(&layout.homes, 3)), (0, 2));
                break;
            }
            assert!(step.moves.len() <= 2);
            step.moves.iter().for_each(|&(model, pool)| layout.homes[model] = pool);
            rounds += 1;
            assert!(rounds < 10);
        }
        assert_eq!(steps(&layout, &wanted, 2, u64::MAX).moves, []);
    }

    #[test]
    fn nobody_moves_for_little() {
        let little = layout(2, &[0, 0, 0, 1, 1]);
        let exchange = plan(&[(4, &[0, 1, 3]), (3, &[2, 4])]);
        let step = steps(&little, &exchange, 4, u64::MAX);
        assert_eq!((step.moves.len(), step.left), (0, 0));
        assert_eq!(step.after, [executors_for(3.0), executors_for(2.0)]);
        // But where there are fewer pools after it, where it saves enough, and where memory wants
        // it.
        let moves = |pools, memory| steps(&little, &plan(pools), 4, memory).moves.len();
        assert_eq!(moves(&[(7, &[0, 1, 2, 3, 4])], u64::MAX), 2);
        assert_eq!(moves(&[(3, &[0, 1, 3]), (2, &[2, 4])], u64::MAX), 2);
        assert_eq!(moves(&[(3, &[0, 1]), (3, &[3, 4]), (2, &[2])], 29), 1);
    }

    #[test]
    fn a_model_waits_until_there_is_memory_for_it() {
        // They change places, and a GPU holds two: nobody can begin.
        let full = layout(2, &[0, 0, 1, 1]);
        let swap = plan(&[(2, &[0, 2]), (2, &[1, 3])]);
        assert_eq!(steps(&full, &swap, 4, 20).left, 2);
        // With one more place, who goes makes room for who comes.
        let step = steps(&full, &swap, 4, 30);
        assert_eq!((step.moves.len(), step.left), (2, 0));
    }

    #[test]
    fn where_there_are_too_few_all_have_less() {
        let fitted = |sizes: &[usize], most| {
            let mut sizes = sizes.to_vec();
            fit(&mut sizes, most);
            sizes
        };
        assert_eq!(fitted(&[4, 0, 6], 10), [4, 0, 6]);
        assert_eq!(fitted(&[40, 0, 60], 10), [4, 0, 6]);
        assert_eq!(fitted(&[10, 10, 10], 10), [4, 3, 3]);
        assert_eq!(fitted(&[1, 1, 98], 10), [1, 1, 9], "whoever has models has an executor");
    }

    #[test]
    fn what_is_not_in_the_plan_stays_and_pools_without_models_need_nobody() {
        let layout = layout(3, &[0, 1, 2]);
        let step = steps(&layout, &plan(&[(2, &[0, 2])]), 4, u64::MAX);
        assert_eq!(step.moves, [(2, 0)]);
        assert_eq!(step.after, [2, 1, 0]);
        assert!(
            steps(&super::Layout { pools: 1, homes: vec![], memory: vec![] }, &plan(&[]), 4, 1)
                .moves
                .is_empty()
        );
    }
}
