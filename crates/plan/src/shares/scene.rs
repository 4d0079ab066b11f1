//! Demands on GPUs of one kind that may be split in two: what fits on a share, beside whom.
//!
//! Members of a share take turns in rounds (`round.rs`). Their latencies depend on their neighbour
//! on the same GPU only by its loudest member, so the demands are kept from the quietest to the
//! loudest: a *level* of noise is the number of the loudest neighbour, counted from one, and zero
//! without a neighbour. More noise never makes anything fit.

use fermata_core::{Profile, Span};

use super::latency::{stretch, stretched};
use super::{Rules, Traits};
use crate::problem::{Kind, Problem};
use crate::round::Turn;

/// Demands that each could be met on some GPU of a kind, ready to be placed.
#[derive(Clone, Debug)]
pub struct Scene {
    /// From the quietest to the loudest.
    pub(super) items: Vec<Item>,
    /// The shares that there are, in percent, ascending; the last is a whole GPU.
    pub(super) sizes: Vec<u32>,
    /// The ways to split a GPU, by the places of two sizes, the smaller first.
    pub(super) splits: Vec<(usize, usize)>,
    /// How many models a share holds at most.
    pub(super) models: usize,
    pub(super) knee: f64,
    /// Bytes of a GPU, and what every share takes for itself.
    memory: u64,
    overhead: u64,
    constant: f64,
}

/// A demand, as shares see it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its place in the problem.
    pub(super) demand: usize,
    pub(super) slo: Span,
    /// What is to be served.
    pub(super) rate: f64,
    memory: u64,
    workspace: u64,
    /// What it adds to its own factor, and to that of a neighbour, on a whole GPU.
    own: f64,
    loudness: f64,
    /// By size.
    pub(super) profiles: Vec<Profile>,
    /// The fewest seconds of a whole GPU that a request takes, in any batch on any share.
    pub(super) cost: f64,
}

/// Who is on a share, by their places in the scene, with the rate that is served there.
pub(super) type Members = [(usize, f64)];

impl Scene {
    /// Of those demands of the problem whose places are given, on the kind. Each must run there, in
    /// time if alone.
    pub(super) fn new(
        problem: &Problem,
        kind: usize,
        demands: &[usize],
        rules: &Rules,
        traits: &[Traits],
    ) -> Self {
        let Kind { memory, .. } = problem.kinds[kind];
        let mut sizes: Vec<u32> =
            rules.splits.iter().flat_map(|&split| [split, 100 - split]).chain([100]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let place = |size: u32| sizes.binary_search(&size).expect("every size is in the list");
        let mut splits: Vec<(usize, usize)> =
            rules.splits.iter().map(|&p| (place(p.min(100 - p)), place(p.max(100 - p)))).collect();
        splits.sort_unstable();
        splits.dedup();
        let unknown = Traits::default();
        let item = |&demand: &usize| {
            let traits = traits.get(demand).unwrap_or(&unknown);
            Item::new(problem, kind, demand, rules, traits, &sizes)
        };
        let mut items: Vec<Item> = demands.iter().map(item).collect();
        items.sort_by(|a, b| a.loudness.total_cmp(&b.loudness).then(a.demand.cmp(&b.demand)));
        let (models, knee, overhead) = (rules.models, rules.knee, rules.overhead);
        let constant = rules.coefficients.constant;
        Self { items, sizes, splits, models, knee, memory, overhead, constant }
    }

    /// The place of a whole GPU in the list of sizes.
    pub(super) fn whole(&self) -> usize {
        self.sizes.len() - 1
    }

    /// The place of what is left beside a share of this size; `None` if nothing is.
    pub(super) fn beside(&self, size: usize) -> Option<usize> {
        let same = |&(p, q): &(usize, usize)| match size {
            _ if size == p => Some(q),
            _ if size == q => Some(p),
            _ => None,
        };
        self.splits.iter().find_map(same)
    }

    /// The noise that a share with these members makes.
    pub(super) fn level(&self, members: &Members) -> usize {
        members.iter().map(|&(item, _)| item + 1).max().unwrap_or(0)
    }

    /// Bytes that a share with these members takes.
    pub(super) fn bytes(&self, members: impl Iterator<Item = usize>) -> u64 {
        let (mut weights, mut workspace, mut any) = (0_u64, 0, false);
        for item in members {
            let item = &self.items[item];
            weights = weights.saturating_add(item.memory);
            workspace = workspace.max(item.workspace);
            any = true;
        }
        if any { weights.saturating_add(workspace).saturating_add(self.overhead) } else { 0 }
    }

    /// Whether two shares may be on one GPU, by their bytes.
    pub(super) fn holds(&self, one: u64, other: u64) -> bool {
        one.saturating_add(other) <= self.memory
    }

    /// How many times as long an item takes on a share of this size beside so much noise.
    fn factor(&self, item: usize, size: usize, level: usize) -> f64 {
        if level == 0 {
            return 1.0;
        }
        let share = f64::from(self.sizes[size]) / 100.0;
        let noise = self.items[level - 1].loudness * (1.0 - share);
        (self.items[item].own * share + noise + self.constant).max(1.0)
    }

    fn seat(&self, item: usize, rate: f64, size: usize, level: usize) -> Seat<'_> {
        let Item { profiles, slo, .. } = &self.items[item];
        let turn = Turn { profile: &profiles[size], slo: *slo, rate };
        Seat { turn, factor: self.factor(item, size, level) }
    }

    /// The shortest round in which all members keep up and are in time; `None`, if there is none.
    /// This is `shortest_round`, with latencies that depend on the neighbour.
    pub(super) fn round(&self, size: usize, level: usize, members: &Members) -> Option<Span> {
        let seats = members.iter().map(|&(item, rate)| self.seat(item, rate, size, level));
        let seats: Vec<Seat<'_>> = seats.collect();
        settle(&seats, Span::ZERO, Span::ZERO)
    }

    /// The batch that a member runs in such a round, and how long it takes.
    pub(super) fn batch(
        &self,
        size: usize,
        level: usize,
        (item, rate): (usize, f64),
        round: Span,
    ) -> (usize, Span) {
        let seat = self.seat(item, rate, size, level);
        (seat.turn.batch(round), seat.latency(round))
    }

    /// The highest rate of an item that a share can serve beside its members; zero, if none.
    pub(super) fn room(&self, size: usize, level: usize, members: &Members, item: usize) -> f64 {
        let seats = members.iter().map(|&(item, rate)| self.seat(item, rate, size, level));
        let seats: Vec<Seat<'_>> = seats.collect();
        let guest = self.seat(item, 0.0, size, level);
        let (mut highest, mut round) = (0.0_f64, Span::ZERO);
        for batch in 1..=guest.turn.profile.max_batch() {
            // A larger batch makes the round longer, so the search goes on from where it was.
            let own = stretch(guest.turn.profile.latency(batch), guest.factor);
            match settle(&seats, round, own) {
                Some(next) if next + own <= guest.turn.slo => round = next,
                _ => break,
            }
            highest = highest.max(batch as f64 / round.as_secs());
        }
        highest
    }

    /// No plan has fewer GPUs, split or not: a member whose batch is `b` in rounds of `d` has a
    /// rate of at most `b / d` and takes `L(b, p) / d` of the time of its share, that is `p L(b, p)
    /// / b` of a GPU for each request a second; its round is at least as long as its batch, so `2
    /// L(b, p) <= slo`. The least of `p L(b, p) / b` over all such `b` and `p`, times the rates,
    /// adds up to GPUs. Neighbours only make batches longer.
    pub fn lower_bound(&self) -> usize {
        // A hair less, so that rounding errors do not add a GPU.
        let fluid = (self.load() - 1e-9).ceil() as usize;
        fluid.max(usize::from(!self.items.is_empty()))
    }

    /// The GPUs that all demands would need if GPUs were a fluid.
    pub fn load(&self) -> f64 {
        self.items.iter().map(|item| item.rate * item.cost).sum()
    }

    /// Only some of the items, ascending, each with a rate of its own.
    pub(super) fn part(&self, chosen: &Members) -> Self {
        let item = |&(item, rate): &(usize, f64)| Item { rate, ..self.items[item].clone() };
        Self {
            items: chosen.iter().map(item).collect(),
            sizes: self.sizes.clone(),
            splits: self.splits.clone(),
            ..*self
        }
    }
}

impl Item {
    fn new(
        problem: &Problem,
        kind: usize,
        demand: usize,
        rules: &Rules,
        traits: &Traits,
        sizes: &[u32],
    ) -> Self {
        let asked = &problem.demands[demand];
        let whole = asked.profiles[kind].as_ref().expect("only demands that run here are placed");
        let profile = |&size: &u32| {
            let profile = traits.on_share(kind, whole, size, rules.batch);
            stretched(&profile, rules.margin, rules.batch)
        };
        let profiles: Vec<Profile> = sizes.iter().map(profile).collect();
        let slo = asked.slo;
        let cost = |(profile, &size): (&Profile, &u32)| {
            let batches = profile.largest_within(Span(slo.0 / 2));
            let each = (1..=batches).map(|batch| profile.cost(batch));
            each.fold(f64::INFINITY, f64::min) * f64::from(size) / 100.0 * 1e-9
        };
        let cost = profiles.iter().zip(sizes).map(cost).fold(f64::INFINITY, f64::min);
        Self {
            demand,
            slo,
            rate: (asked.rate - rules.left_over).max(asked.rate * 1e-6),
            memory: asked.memory,
            workspace: asked.workspace,
            own: rules.coefficients.own(traits.usage),
            loudness: rules.coefficients.other(traits.usage),
            profiles,
            cost,
        }
    }

    /// The GPUs that it would need if GPUs were a fluid.
    pub(super) fn load(&self) -> f64 {
        self.rate * self.cost
    }
}

/// A member with its neighbour in mind.
struct Seat<'a> {
    turn: Turn<'a>,
    factor: f64,
}

impl Seat<'_> {
    fn latency(&self, round: Span) -> Span {
        stretch(self.turn.latency(round), self.factor)
    }
}

/// The shortest round of at least `round` in which the seats keep up beside a batch that takes
/// `guest`; `None`, if somebody is late then.
fn settle(seats: &[Seat<'_>], round: Span, guest: Span) -> Option<Span> {
    let sum = |round| seats.iter().fold(guest, |sum, seat| sum + seat.latency(round));
    let mut round = round.max(sum(Span::ZERO));
    loop {
        if !seats.iter().all(|seat| round + seat.latency(round) <= seat.turn.slo) {
            return None;
        }
        let next = sum(round);
        if next <= round {
            return Some(round);
        }
        round = next;
    }
}
