//! Pricing for thousands of sessions of a few models: what `columns` does, by whole models.
//!
//! Of sessions that differ in nothing but their rate, those that still fit on a GPU are the ones below some rate, which
//! halving finds. So a model is looked through from that rate down, and left at the first session from which on none
//! could be a part of something better.

use super::columns::{Effort, Found};
use super::{Bin, Packer, Session, Set};

/// Sessions that differ only in their rate.
pub(super) struct Alike {
    /// By model, in ascending order of rates.
    pub(super) models: Vec<Set>,
}

impl Alike {
    pub(super) fn new(packer: &Packer<'_>) -> Self {
        let session = |at: usize| &packer.sessions[at];
        let key = |at: usize| {
            let Session { turn, memory, workspace, .. } = session(at);
            (turn.slo, turn.profile.max_batch(), turn.profile.shortest(), *memory, *workspace)
        };
        let rate = |at: usize| session(at).turn.rate;
        let mut order: Vec<usize> = (0..packer.sessions.len()).collect();
        order.sort_by(|&a, &b| key(a).cmp(&key(b)).then(rate(a).total_cmp(&rate(b))));
        // Two models with the same key may come in turns, and are then more models than they are: that costs only time.
        let same = |a: usize, b: usize| {
            key(a) == key(b) && session(a).turn.profile == session(b).turn.profile
        };
        Self { models: order.chunk_by(|&a, &b| same(a, b)).map(<[usize]>::to_vec).collect() }
    }

    /// Sets that are worth more than a GPU at these prices, as `Items::price` finds them: the best for each first member.
    pub(super) fn price(&self, packer: &Packer<'_>, prices: &[f64], effort: &mut Effort) -> Found {
        let empty = Bin::empty();
        let density = |&at: &usize| {
            let round = empty.round_with(packer, at).expect("each session fits alone");
            prices[at] / packer.sessions[at].turn.latency(round).0 as f64
        };
        let densest = |model: &Set| model.iter().map(density).fold(0.0, f64::max);
        let mut models: Vec<Model<'_>> =
            self.models.iter().map(|model| Model::new(model, prices, densest(model))).collect();
        // The rest of a set comes from models after that of its first member: the denser come first.
        models.sort_by(|a, b| b.dense.total_cmp(&a.dense).then(a.sessions.cmp(b.sessions)));
        let places = models.iter().enumerate();
        let roots: Vec<(usize, usize)> = places
            .flat_map(|(model, each)| (0..each.sessions.len()).map(move |place| (model, place)))
            .filter(|&(model, place)| prices[models[model].sessions[place]] > 0.0)
            .collect();
        let mut search =
            Search { packer, prices, models, best: 0.0, found: None, chosen: Vec::new() };
        let (mut sets, mut most) = (Vec::new(), 1.0 + effort.worth);
        for tried in 0..roots.len() {
            let (model, place) = roots[(effort.first + tried) % roots.len()];
            search.best = 1.0 + effort.worth;
            search.add(&empty, 0.0, model, place);
            most = most.max(search.best);
            sets.extend(search.found.take());
            if sets.len() == effort.enough {
                effort.first += tried + 1;
                return Found { sets, most: None };
            }
        }
        Found { sets, most: Some(most) }
    }
}

struct Model<'a> {
    /// In ascending order of rates.
    sessions: &'a [usize],
    /// The highest price of those up to each place.
    highest: Vec<f64>,
    /// The most that one of them is worth for the time that it takes.
    dense: f64,
}

impl<'a> Model<'a> {
    fn new(sessions: &'a [usize], prices: &[f64], dense: f64) -> Self {
        let mut most = 0.0_f64;
        let highest = sessions.iter().map(|&at| {
            most = most.max(prices[at]);
            most
        });
        Self { highest: highest.collect(), sessions, dense }
    }
}

struct Search<'a> {
    packer: &'a Packer<'a>,
    prices: &'a [f64],
    /// The densest first.
    models: Vec<Model<'a>>,
    /// Only sets that are worth more are of interest.
    best: f64,
    /// The set that is worth as much, if one was found.
    found: Option<Set>,
    chosen: Set,
}

impl Search<'_> {
    /// Adds a session that fits to the chosen ones, then any of the same model at lower rates and of the models after
    /// it, in all ways that could be worth more than the best.
    fn add(&mut self, bin: &Bin, value: f64, model: usize, place: usize) {
        let at = self.models[model].sessions[place];
        let round = bin.round_with(self.packer, at).expect("the session fits");
        let value = value + self.prices[at];
        let mut bin = bin.clone();
        bin.push(self.packer, at, round);
        self.chosen.push(at);
        if value > self.best {
            let mut set = self.chosen.clone();
            set.sort_unstable();
            (self.best, self.found) = (value, Some(set));
        }
        self.extend(&bin, value, model, place);
        for next in model + 1..self.models.len() {
            self.extend(&bin, value, next, self.models[next].sessions.len());
        }
        self.chosen.pop();
    }

    /// Adds sessions of one model, of those before a place.
    fn extend(&mut self, bin: &Bin, value: f64, model: usize, before: usize) {
        let Model { sessions, dense, .. } = self.models[model];
        let Some(&first) = sessions.first() else { return };
        // Whatever follows is less dense than this model, and its room ends where an objective does.
        let rest = |weight: f64| dense * (bin.room().0 as f64 - weight);
        let shortest = self.packer.sessions[first].turn.profile.shortest();
        let hopeless = |search: &Self, place: usize| {
            value + search.models[model].highest[place] + rest(shortest.0 as f64) <= search.best
        };
        if bin.room() < shortest || before == 0 || hopeless(self, before - 1) {
            return;
        }
        let fits = |&at: &usize| bin.round_with(self.packer, at).is_some();
        let fitting = sessions[..before].partition_point(fits);
        for place in (0..fitting).rev() {
            if hopeless(self, place) {
                return;
            }
            let at = sessions[place];
            let latency = self.packer.sessions[at].turn.latency(bin.round).0 as f64;
            if self.prices[at] > 0.0 && value + self.prices[at] + rest(latency) > self.best {
                self.add(bin, value, model, place);
            }
        }
    }
}
