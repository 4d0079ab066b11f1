//! The market of a pool: what a moment of an idle executor is worth, and whether holding pays
//! there.
//!
//! Models report how much executor time they need and how much of it a fuller batch would save; the
//! market adds that up and answers with one [`Signal`] for all. `docs/policy.md` derives every
//! formula. No model's requests are seen here.

use fermata_core::{ClassId, Span};

/// What a model tells the market. Shares are weighted by load, so that they add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// The executors that it needs at its present rate with well-filled batches.
    pub load: f64,
    /// The executors that it needs with batches of one.
    pub alone: f64,
    /// Its load, times the executor time that holding an idle executor saves per moment held.
    pub gain: f64,
    /// Its load, times the squared coefficient of variation of the time between its batches.
    pub variation: f64,
    /// The share of its recent requests that were lost.
    pub bad: f64,
}

/// What the market tells every model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signal {
    /// The executors needed over those present: the pool's utilisation if batches are well filled.
    pub load: f64,
    /// What a moment of idleness costs, in moments of executor time.
    pub price: f64,
    /// On the average of the pool's load, holding saves more executor time than it costs.
    pub hold: bool,
    /// Even with batches of one the executors would hardly have anything to do: there is nothing to
    /// save.
    pub idle: bool,
    /// How late wakeups may come.
    pub slack: Span,
    /// How long it takes until one of the executors is free: on average, and where there is only
    /// one that may be granted, at most.
    pub turn: Span,
    /// The mean share of recent requests lost, over models.
    pub bad: f64,
    /// There is one model at most.
    pub alone: bool,
    /// How many executors there are.
    pub executors: u32,
    /// How many of them are idle.
    pub idle_executors: u32,
    /// The class with the most executors: loads are told as if all were of it.
    pub main_class: ClassId,
}

/// A batch's latency enters the mean with this weight: it remembers about the last hundred batches.
const LATENCY_WEIGHT: f64 = 0.01;

/// Holding loses this many standard deviations of the time that it takes to gather a batch.
const DEVIATIONS: f64 = 1.1;
/// The moments of an executor's idleness, about, at which all others may turn out to be busy.
const LOOKS: f64 = 4.0;
/// A pool that is less busy than this with batches of one need not save. In time that executors are
/// busy, a fuller batch could gain no more than this.
const IDLE_MAX: f64 = 0.04;
/// Batches are not taken to come more regularly than this.
const VARIATION_MIN: f64 = 0.001;

/// The market of one pool.
#[derive(Clone, Debug, Default)]
pub struct Market {
    models: usize,
    executors: usize,
    total: Report,
    latency_ns: f64,
    /// The mean of their squares.
    square_ns2: f64,
    /// The longest of them, which is forgotten as slowly.
    longest_ns: f64,
    /// Of two executors one is taken to be left to tight objectives.
    leaves_one: bool,
    signal: Signal,
}

impl Market {
    /// What every model may know.
    #[inline]
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The pool has this many executors, most of them of this class.
    pub fn set_executors(&mut self, executors: usize, main_class: ClassId) {
        self.executors = executors;
        self.signal.main_class = main_class;
        self.update();
    }

    /// So many executors are idle.
    #[inline]
    pub fn set_idle(&mut self, executors: usize) {
        self.signal.idle_executors = executors as u32;
    }

    /// How far it is from one end of a batch to the next, on average over the time that batches
    /// run: long ones count for more.
    pub fn pause(&self) -> Span {
        let busy = self.square_ns2 / self.latency_ns.max(1.0);
        Span((busy / self.executors.max(1) as f64) as u64)
    }

    /// Whether one of two executors is taken to be left to tight objectives: the other one is as if
    /// alone then.
    pub fn set_leaves_one(&mut self, leaves_one: bool) {
        self.leaves_one = leaves_one;
        self.update();
    }

    /// Wakeups come late by as much as this.
    pub fn set_slack(&mut self, slack: Span) {
        self.signal.slack = slack;
    }

    /// A model joined (`None` before) or left (`None` after) the market, or reports anew.
    pub fn report(&mut self, before: Option<Report>, after: Option<Report>) {
        self.models = self.models + usize::from(after.is_some()) - usize::from(before.is_some());
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        // What is left when all models are quiet is rounding, and must not fall below nothing.
        let add =
            |total: &mut f64, before: f64, after: f64| *total = (*total + after - before).max(0.0);
        add(&mut self.total.load, before.load, after.load);
        add(&mut self.total.alone, before.alone, after.alone);
        add(&mut self.total.gain, before.gain, after.gain);
        add(&mut self.total.variation, before.variation, after.variation);
        add(&mut self.total.bad, before.bad, after.bad);
        if self.models == 0 {
            self.total = Report::default(); // Nothing of the rounding stays behind.
        }
        self.update();
    }

    /// A batch was started.
    #[inline]
    pub fn note_batch(&mut self, latency: Span) {
        let latency = latency.0 as f64;
        self.latency_ns += (latency - self.latency_ns) * LATENCY_WEIGHT;
        self.square_ns2 += (latency * latency - self.square_ns2) * LATENCY_WEIGHT;
        self.longest_ns += (latency - self.longest_ns)
            * if latency < self.longest_ns { LATENCY_WEIGHT } else { 1.0 };
    }

    fn update(&mut self) {
        let executors = self.executors.max(1) as f64;
        let total = self.total.load.max(f64::MIN_POSITIVE);
        let load = self.total.load / executors;
        let price = price(load, executors, self.total.variation / total);
        self.signal = Signal {
            load,
            price,
            hold: self.total.gain / total > price,
            idle: self.total.alone < IDLE_MAX * executors,
            slack: self.signal.slack,
            // Of several executors one is free soon, however long a batch of another runs; of one,
            // not before that batch is done. Of two, one may have to be left to a tight objective.
            turn: Span(match self.executors {
                0 | 1 => self.longest_ns,
                2 if self.leaves_one => self.longest_ns,
                _ => self.latency_ns / executors,
            } as u64),
            bad: self.total.bad / self.models.max(1) as f64,
            alone: self.models < 2,
            executors: self.executors as u32,
            idle_executors: self.signal.idle_executors,
            main_class: self.signal.main_class,
        };
    }
}

/// What a moment of idleness costs in a pool of this load, for this squared coefficient of
/// variation of the time between a model's batches.
fn price(load: f64, executors: f64, variation: f64) -> f64 {
    // The more the batches deviate, the fewer executors share the deviations in effect (Hayward).
    let effective = executors / variation.max(VARIATION_MIN);
    let needed = (LOOKS * wait_probability(load, effective)).min(1.0);
    DEVIATIONS * variation.sqrt() * needed
}

/// The probability that all executors are busy, were arrivals and services memoryless: Erlang's C
/// in Sakasegawa's approximation.
fn wait_probability(load: f64, executors: f64) -> f64 {
    load.clamp(0.0, 1.0).powf((2.0 * (executors + 1.0)).sqrt() - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_is_dear_on_one_busy_executor_and_free_on_many_idle_ones() {
        assert!((wait_probability(0.8, 1.0) - 0.8).abs() < 1e-12);
        assert!(wait_probability(0.3, 24.0) < 0.001);
        assert_eq!(wait_probability(1.5, 24.0), 1.0);
        assert!(wait_probability(0.9, 8.0) > wait_probability(0.9, 64.0));
    }

    #[test]
    fn idleness_is_dearer_the_more_the_batches_vary_and_the_fuller_the_pool() {
        assert_eq!(price(1.0, 8.0, 1.0), DEVIATIONS);
        assert!((price(1.2, 64.0, 0.25) - DEVIATIONS / 2.0).abs() < 1e-12);
        assert!(price(0.7, 24.0, 0.03) < 1e-6, "regular batches leave a slack pool slack");
        assert!(price(0.7, 16.0, 2.4) > DEVIATIONS, "bursts fill it now and then");
        assert_eq!(price(0.9, 8.0, 0.0), 0.0);
    }

    #[test]
    fn reports_add_up_and_leave_nothing_behind() {
        let report = |load| Report {
            load,
            alone: 2.0 * load,
            gain: load * 0.5,
            variation: load * 0.2,
            bad: 0.01,
        };
        let mut market = Market::default();
        market.set_executors(4, ClassId(0));
        market.report(None, Some(report(1.0)));
        market.report(None, Some(report(0.5)));
        assert!((market.signal().load - 0.375).abs() < 1e-12);
        assert!(market.signal().hold, "half a moment saved per moment held, at a low price");
        market.report(Some(report(1.0)), Some(report(3.0)));
        assert!((market.signal().load - 0.875).abs() < 1e-12);
        market.report(Some(report(3.0)), Some(report(0.1)));
        market.report(Some(report(0.5)), Some(report(0.2)));
        for (before, after) in [(0.1, 0.3), (0.3, 0.0), (0.2, 0.0)] {
            market.report(Some(report(before)), Some(report(after)));
        }
        let Signal { load, price, .. } = *market.signal();
        assert!((0.0..1e-9).contains(&load) && price >= 0.0, "{load} {price}");
        market.report(Some(report(0.0)), Some(report(3.0)));
        market.report(Some(report(0.0)), Some(report(0.5)));
        market.report(Some(report(3.0)), None);
        market.report(Some(report(0.5)), None);
        assert_eq!(market.total, Report::default());
    }
}
