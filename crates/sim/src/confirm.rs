//! Whether a plan holds: each of its pools is run in virtual time, under the scheduler that serves.
//!
//! Of a pool in which dispatch decides, the fewest GPUs are searched for with which every model has
//! enough of its requests in time. Where a plan has rounds, each pool is run with the GPUs that it
//! has; the scheduler then does what it always does, and may deviate from the rounds.

use std::ptr;
use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span, Time};
use fermata_dispatch::{ModelSpec, Network, Policy};
use fermata_plan::shares::{Rules, Traits, stretched};
use fermata_plan::{Infeasible, Member, Plan, Pool, Problem, Reason};

use crate::feed::Drawn;
use crate::scenario::{Arrivals, End, Load, Scenario};
use crate::search::{BAD_MAX, fewest_near, run, run_drawn, spread};

/// What a plan was made for, and how that is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Demands<'a> {
    /// The problem that the plan solves.
    pub problem: &'a Problem,
    /// How GPUs are cut.
    pub rules: &'a Rules,
    /// By demand: what is known of it on shares.
    pub traits: &'a [Traits],
    /// By demand: when requests come, at its rate. Recorded moments have none.
    pub arrivals: &'a [Arrivals],
    /// Under which policy plans are tried.
    pub policy: Policy,
    /// No pool is tried with more GPUs.
    pub gpus_max: usize,
}

/// How thoroughly plans are tried.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// At least so many requests in each run.
    pub requests: u64,
    /// At least so long a run.
    pub seconds: f64,
    /// What was found is tried again with the next one.
    pub seed: u64,
    /// How many runs go side by side.
    pub threads: usize,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// By pool of the plan.
    pub pools: Vec<Tried>,
    /// How many GPUs the planner had estimated.
    pub estimate: usize,
}

/// What came out of one pool.
#[derive(Clone, Debug)]
pub struct Tried {
    /// By member.
    pub members: Vec<Seen>,
    /// How many requests each run had.
    pub requests: u64,
}

/// What happened to one member of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Dropped or late, with each seed.
    pub bad_rates: [f64; 2],
    /// What 99 % of the answers took at most, with the first seed.
    pub p99: Span,
}

impl Seen {
    fn is_good(&self) -> bool {
        self.bad_rates.iter().all(|&bad| bad <= BAD_MAX)
    }
}

impl Confirmed {
    /// The highest bad rate of any member of any pool, with each seed.
    pub fn worst(&self) -> [f64; 2] {
        let members = || self.pools.iter().flat_map(|pool| &pool.members);
        [0, 1].map(|seed| members().map(|seen| seen.bad_rates[seed]).fold(0.0, f64::max))
    }

    /// Whether every model has enough of its requests in time, with both seeds.
    pub fn is_good(&self) -> bool {
        self.worst().iter().all(|&bad| bad <= BAD_MAX)
    }
}

/// Gives each pool in which dispatch decides the fewest GPUs that are enough, within the limits of
/// the problem, and tells what happens in each pool. `finished` is called once for each pool, as
/// soon as it was tried.
pub fn confirm(
    asked: &Demands<'_>,
    plan: &mut Plan,
    trial: Trial,
    finished: impl Fn() + Sync,
) -> Confirmed {
    let estimate = plan.gpus();
    let bench = Bench { asked, pools: &plan.pools, trial };
    let tried = spread(&plan.pools, trial.threads, |pool| {
        let tried = match pool.round {
            None => bench.fewest(pool),
            Some(_) => (pool.gpus.len(), bench.run(pool, pool.gpus.len())),
        };
        finished();
        tried
    });
    let (mut sizes, mut tried): (Vec<usize>, Vec<Tried>) = tried.into_iter().unzip();
    if plan.pools.iter().any(|pool| pool.round.is_some()) {
        return Confirmed { pools: tried, estimate };
    }
    resize(plan, &sizes);
    let enough = plan.gpus();
    if limit(asked.problem, plan, &mut sizes) {
        resize(plan, &sizes);
        let bench = Bench { asked, pools: &plan.pools, trial };
        tried = spread(&plan.pools, trial.threads, |pool| bench.run(pool, pool.gpus.len()));
        name_the_late(plan, &tried, enough);
    }
    Confirmed { pools: tried, estimate }
}

/// Whether the sizes of pools are beyond what there may be, and then less: the largest give.
fn limit(problem: &Problem, plan: &Plan, sizes: &mut [usize]) -> bool {
    let mut changed = false;
    let mut shrink = |sizes: &mut [usize], limit: usize, of: &dyn Fn(usize) -> bool| {
        let pools: Vec<usize> = (0..sizes.len()).filter(|&at| of(plan.pools[at].kind)).collect();
        while pools.iter().map(|&at| sizes[at]).sum::<usize>() > limit {
            let Some(&largest) = pools.iter().max_by_key(|&&at| sizes[at]) else { return };
            if sizes[largest] <= 1 {
                return;
            }
            sizes[largest] -= 1;
            changed = true;
        }
    };
    for (kind, limit) in problem.kinds.iter().enumerate().filter_map(|(at, k)| Some((at, k.limit?)))
    {
        shrink(sizes, limit, &|of| of == kind);
    }
    if let Some(limit) = problem.limit {
        shrink(sizes, limit, &|_| true);
    }
    changed
}

/// Who is late with as many GPUs as there may be is not served as asked.
fn name_the_late(plan: &mut Plan, tried: &[Tried], gpus: usize) {
    for (pool, tried) in plan.pools.iter().zip(tried) {
        for (member, seen) in pool.members.iter().zip(&tried.members).filter(|(_, s)| !s.is_good())
        {
            let served = member.rate * (1.0 - seen.bad_rates[0]);
            let reason = Reason::NoGpu { served, gpus };
            plan.infeasible.push(Infeasible { demand: member.demand, reason });
        }
    }
    plan.infeasible.sort_by_key(|each| each.demand);
}

/// Gives each pool so many GPUs of its own.
fn resize(plan: &mut Plan, sizes: &[usize]) {
    let mut first = 0;
    for (pool, &size) in plan.pools.iter_mut().zip(sizes) {
        let before = pool.gpus.len();
        pool.gpus = (first..first + size).collect();
        first += size;
        for member in &mut pool.members {
            member.occupancy *= before as f64 / size as f64;
        }
    }
}

/// Where pools are tried.
struct Bench<'a> {
    asked: &'a Demands<'a>,
    /// All pools of the plan: those with shares have neighbours.
    pools: &'a [Pool],
    trial: Trial,
}

impl Bench<'_> {
    /// The fewest executors of a pool with which every model has enough of its requests in time:
    /// searched from the estimate with one seed, and then as many more as it takes to pass with the
    /// other too.
    fn fewest(&self, pool: &Pool) -> (usize, Tried) {
        let scenario = self.scenario(pool, 1, self.trial.seed);
        let drawn = Drawn::new(&scenario, 1.0);
        let passes = |executors: usize| {
            let scenario = scenario.with_executors(executors);
            let stats = run_drawn(&scenario, &drawn, 1.0, self.asked.policy, Some(BAD_MAX));
            !stats.stopped && stats.worst_bad_rate() <= BAD_MAX
        };
        let most = self.asked.gpus_max;
        let mut executors = fewest_near(pool.gpus.len(), most, passes).unwrap_or(most);
        loop {
            let tried = self.run(pool, executors);
            if tried.members.iter().all(Seen::is_good) || executors >= most {
                return (executors, tried);
            }
            executors += 1;
        }
    }

    /// Runs a pool with both seeds, to the end.
    fn run(&self, pool: &Pool, executors: usize) -> Tried {
        let seeds = [self.trial.seed, self.trial.seed.wrapping_add(1)];
        let [first, second] =
            seeds.map(|seed| run(&self.scenario(pool, executors, seed), self.asked.policy));
        let seen = first.models.iter().zip(&second.models).map(|(first, second)| Seen {
            bad_rates: [first.bad_rate(), second.bad_rate()],
            p99: first.latency.quantile(0.99),
        });
        Tried { members: seen.collect(), requests: first.total().offered }
    }

    /// A pool as it is simulated.
    fn scenario(&self, pool: &Pool, executors: usize, seed: u64) -> Scenario {
        let load = |member: &Member| {
            let slo = self.asked.problem.demands[member.demand].slo;
            Load::new(
                Arc::new(ModelSpec::uniform(slo, self.profile(pool, member.demand))),
                self.asked.arrivals[member.demand].at_rate(member.rate),
            )
        };
        let loads: Vec<Load> = pool.members.iter().map(load).collect();
        let rate: f64 = loads.iter().map(Load::rate).sum();
        let seconds = self.trial.seconds.max(self.trial.requests as f64 / rate);
        Scenario {
            loads,
            executors: vec![ClassId(0); executors],
            network: Network::default(),
            end: End::At(Time::START + Span::from_secs(seconds)),
            seed,
            noise: 0.0,
            faults: Vec::new(),
        }
    }

    /// How long the batches of a demand take on an executor of a pool: on a share, and beside a
    /// neighbour, as the planner reckons.
    fn profile(&self, pool: &Pool, demand: usize) -> Profile {
        let whole = self.asked.problem.demands[demand].profiles[pool.kind].clone();
        let whole = whole.expect("a demand is placed where it runs");
        if pool.share == 100 {
            return whole;
        }
        let Demands { rules, traits, .. } = self.asked;
        let used = |demand: usize, pool: &Pool| traits[demand].usage.on_share(pool.share);
        let beside = self.pools.iter().filter(|other| {
            !ptr::eq(*other, pool) && other.gpus.iter().any(|gpu| pool.gpus.contains(gpu))
        });
        let others = beside.flat_map(|other| other.members.iter().map(move |each| (other, each)));
        let own = used(demand, pool);
        let factors =
            others.map(|(other, each)| rules.coefficients.factor(own, used(each.demand, other)));
        let factor = factors.fold(1.0, f64::max) * rules.margin;
        let profile = traits[demand].on_share(pool.kind, &whole, pool.share, rules.batch);
        stretched(&profile, factor, rules.batch)
    }
}
