//! Which kind of GPU each demand goes to: the cheapest for it, while there are enough of that kind.

use fermata_core::Span;

use super::Method;
use crate::plan::{Infeasible, Reason};
use crate::pools;
use crate::problem::{Demand, Problem};

/// A demand and the kind of GPU that it is to run on.
pub(super) type Chosen = (usize, usize);

/// A demand, and the kinds of GPU that can serve it.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) demand: usize,
    /// The cheapest first.
    offers: Vec<Offer>,
}

/// A kind of GPU for a demand.
#[derive(Clone, Copy, Debug)]
struct Offer {
    kind: usize,
    /// How many of them it keeps busy at least.
    load: f64,
    /// What these cost.
    price: f64,
}

/// For each demand that can be met the kinds that do it, and those that cannot.
pub(super) fn choices(problem: &Problem, method: Method) -> (Vec<Choice>, Vec<Infeasible>) {
    let (mut choices, mut infeasible) = (Vec::new(), Vec::new());
    for (demand, asked) in problem.demands.iter().enumerate() {
        match offers(problem, method, asked) {
            Ok(offers) => choices.push(Choice { demand, offers }),
            Err(reason) => infeasible.push(Infeasible { demand, reason }),
        }
    }
    (choices, infeasible)
}

fn offers(problem: &Problem, method: Method, asked: &Demand) -> Result<Vec<Offer>, Reason> {
    let kinds = problem.kinds.iter().zip(&asked.profiles).enumerate();
    let runs: Vec<_> =
        kinds.filter_map(|(at, (kind, profile))| Some((at, kind, profile.as_ref()?))).collect();
    let Some(most) = runs.iter().map(|(_, kind, _)| kind.memory).max() else {
        return Err(Reason::NoProfile);
    };
    let memory = asked.memory.saturating_add(asked.workspace);
    if memory > most {
        return Err(Reason::TooLarge { memory, most });
    }
    let holds = || runs.iter().filter(|(_, kind, _)| memory <= kind.memory);
    let mut offers = Vec::new();
    let mut slo_min = Span::MAX;
    for &(at, kind, profile) in holds() {
        let shortest = method.shortest_slo(profile.shortest());
        slo_min = slo_min.min(shortest);
        if shortest <= asked.slo {
            let load = pools::least_load(profile, asked.slo, asked.rate.max(f64::MIN_POSITIVE));
            offers.push(Offer { kind: at, load, price: kind.price * load });
        }
    }
    if offers.is_empty() {
        return Err(Reason::TooTight { slo_min });
    }
    offers.sort_by(|a, b| a.price.total_cmp(&b.price));
    Ok(offers)
}

/// The kind of each demand. Where a kind is needed more than there are of it, those leave it for
/// another that are served there for the least money more, by the GPUs that they set free; `gpus`
/// says how many demands on one kind need.
pub(super) fn choose(
    problem: &Problem,
    choices: &[Choice],
    gpus: impl Fn(&[Chosen]) -> usize,
) -> Vec<Chosen> {
    // For each demand its place among its offers.
    let mut taken = vec![0; choices.len()];
    let mut full = vec![false; problem.kinds.len()];
    let limited = |full: &[bool], kind: usize| problem.kinds[kind].limit.filter(|_| !full[kind]);
    loop {
        let chosen = |taken: &[usize]| -> Vec<Chosen> {
            let of = |(each, &at): (&Choice, &usize)| (each.demand, each.offers[at].kind);
            choices.iter().zip(taken).map(of).collect()
        };
        let need = |taken: &[usize], kind: usize| {
            let on: Vec<Chosen> = chosen(taken).into_iter().filter(|each| each.1 == kind).collect();
            gpus(&on)
        };
        let over = (0..full.len())
            .find(|&kind| limited(&full, kind).is_some_and(|limit| need(&taken, kind) > limit));
        let Some(kind) = over else { return chosen(&taken) };
        full[kind] = true;
        // Who could leave, and for what money a GPU, the cheapest first.
        let mut leavers: Vec<(f64, usize, usize)> = Vec::new();
        for (at, choice) in choices.iter().enumerate() {
            let now = choice.offers[taken[at]];
            let next = choice.offers.iter().position(|offer| !full[offer.kind]);
            if let Some(next) = next.filter(|_| now.kind == kind) {
                let more = choice.offers[next].price - now.price;
                leavers.push((more / now.load.max(f64::MIN_POSITIVE), at, next));
            }
        }
        leavers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let without = |count: usize| {
            let mut taken = taken.clone();
            leavers[..count].iter().for_each(|&(_, at, next)| taken[at] = next);
            taken
        };
        let limit = problem.kinds[kind].limit.unwrap_or(usize::MAX);
        // The fewest that have to leave; all, if even that is not enough.
        let (mut low, mut high) = (0, leavers.len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            if need(&without(middle), kind) <= limit { high = middle } else { low = middle }
        }
        taken = without(high);
    }
}
