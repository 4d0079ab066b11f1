//! research stub

use std::sync::OnceLock;

use fermata_core::{Profile, Span, Time};

use crate::pace::Pace;

/// What the pool tells every model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signal {
    /// Price of idle executor time.
    pub price: f64,
    /// Load.
    pub load: f64,
    /// Executors.
    pub executors: usize,
    /// mean latency of batches
    pub mean_latency: f64,
    /// margin
    pub margin: Span,
    /// hold regime
    pub hold: bool,
    /// bad ewma
    pub bad: f64,
    /// fraction of grants that came with nobody idle
    pub scarce: f64,
}

/// P
pub fn param(i: usize, default: f64) -> f64 {
    static P: OnceLock<Vec<Option<f64>>> = OnceLock::new();
    P.get_or_init(|| {
        (0..32)
            .map(|i| std::env::var(format!("P{i}")).ok().map(|s| s.parse().unwrap_or(0.0)))
            .collect()
    })[i]
        .unwrap_or(default)
}

/// What a model has derived for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// Executors needed.
    pub load: f64,
    patience: u64,
    cost: f64,
    target: usize,
    /// b
    pub bad: f64,
    /// g
    pub gain: f64,
    /// v
    pub variation: f64,
    weight: f64,
    pub(crate) slo: Span,
}

fn cost_at(profile: &Profile, b: f64) -> f64 {
    let low = b.floor().max(1.0);
    let l0 = profile.latency(low as usize).0 as f64;
    let l1 = profile.latency((low as usize + 1).min(profile.max_batch())).0 as f64;
    (l0 + (l1 - l0) * (b - low).max(0.0)) / b.max(1.0)
}

fn pace_batch(profile: &Profile, budget: Span, rate: f64) -> f64 {
    let low = crate::model::staggered_batch(profile, budget, rate);
    if low >= profile.max_batch() || rate <= 0.0 {
        return low as f64;
    }
    let at = |b: usize| profile.latency(b).0 as f64 + b as f64 / rate;
    let (l0, l1) = (at(low), at(low + 1));
    (low as f64 + ((budget.0 as f64 - l0) / (l1 - l0)).clamp(0.0, 1.0)).max(1.0)
}

fn efficient(profile: &Profile, size: usize, tol: f64, floor: f64) -> usize {
    let limit = profile.cost(size) * (1.0 + tol);
    let least = (size as f64 * floor).ceil() as usize;
    let (mut tl, mut th) = (least.max(1), size);
    while tl < th {
        let m = (tl + th) / 2;
        if profile.cost(m) <= limit { th = m } else { tl = m + 1 }
    }
    tl
}

impl Tuning {
    pub(crate) fn new(slo: Span) -> Self {
        Self { slo, ..Self::default() }
    }
    pub(crate) fn note_batch(&mut self, _skip: usize, size: usize, latency: Span) {
        let cost = latency.0 as f64 / size as f64;
        if self.cost == 0.0 {
            self.cost = cost;
        }
        // per-request average: weight by size
        let w = (size as f64 / (size as f64 + 32.0 * self.target.max(1) as f64)).min(1.0);
        self.cost += (cost - self.cost) * w;
    }

    pub(crate) fn retune(
        &mut self,
        pace: &Pace,
        profile: &Profile,
        target: usize,
        signal: &Signal,
    ) {
        self.target = target;
        let b = pace_batch(
            profile,
            self.slo,
            pace.rate() / if signal.load > 0.0 { signal.load.clamp(0.05, 1.0) } else { 1.0 },
        );
        let star = cost_at(profile, b);
        self.load = pace.rate() * star;
        self.variation = pace.variation() / b;
        let marginal = if target < profile.max_batch() {
            (profile.latency(target + 1) - profile.latency(target)).0 as f64
        } else if target > 1 {
            (profile.latency(target) - profile.latency(target - 1)).0 as f64
        } else {
            star
        };
        let cost = if param(0, 0.0) > 0.5 { self.cost.max(star) } else { star };
        let saving = (cost - marginal).max(0.0);
        let price = (signal.price * param(3, 1.0)).max(param(1, 0.01));
        self.gain = self.load * (1.0 - marginal / cost).max(0.0);
        let hold = if param(20, 1.0) > 0.5 { signal.hold } else { self.gain > price };
        self.patience = pace.patience(saving, price, hold, param(21, 0.1));
    }

    #[inline]
    pub(crate) fn ready(&self, frontrun: Time, latest: Time, pace: &Pace, signal: &Signal) -> Time {
        frontrun
            .min(latest - signal.margin - Span((self.weight * self.slo.0 as f64) as u64))
            .min(pace.last() + Span(self.patience))
    }

    #[inline]
    pub(crate) fn urgency(
        &self,
        latest: Time,
        due: Time,
        size: usize,
        profile: &Profile,
        _signal: &Signal,
    ) -> Time {
        let mut u = latest;
        if param(10, 0.0) > 0.5 {
            let t = efficient(profile, size, param(13, 0.1), param(5, 0.4));
            u = due - profile.latency(t);
        }
        u - Span((self.weight * param(17, 1.0) * self.slo.0 as f64) as u64)
    }

    pub(crate) fn note_bad(&mut self, bad: f64, signal: &Signal) {
        self.bad += (bad - self.bad) * param(14, 0.002);
        let fade = (1.0 - signal.bad * param(15, 20.0)).max(0.0);
        self.weight += (bad - signal.bad * param(26, 1.0)) * param(12, 0.02);
        self.weight = self.weight.max(0.0).min(param(16, 1.0) * fade);
    }

    pub(crate) fn gather(
        &self,
        waiting: usize,
        profile: &Profile,
        signal: &Signal,
        fits: impl Fn(usize) -> usize,
    ) -> (usize, usize) {
        // largest batch over skips: the first skip where everything left fits
        let (mut low, mut high) = (0, waiting);
        while low < high {
            let middle = (low + high) / 2;
            if fits(middle) >= waiting - middle {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let at_low = waiting - low.min(waiting);
        let before = if low > 0 { fits(low - 1) } else { 0 };
        let gathered = at_low.max(before);
        if gathered == 0 {
            return (0, 0);
        }
        let tol = if param(6, 0.0) > 0.5 {
            param(4, 0.2) * (1.0 - signal.load.powf(param(6, 8.0))).max(0.0)
        } else {
            let floor = param(24, 0.0) * (1.0 - (signal.load - 1.0) * 5.0).clamp(0.0, 1.0);
            (1.0 / signal.load - 1.0).clamp(floor, param(25, 1.0).max(floor))
        };
        let mut target = efficient(profile, gathered, tol, param(5, 0.4));
        if param(18, 0.0) > 0.0 {
            target = target.min(((self.target as f64 * param(18, 0.0)) as usize).max(1));
        }
        if param(11, 0.0) > 0.5 {
            let first = fits(0);
            if first > 0 && waiting - first >= (gathered as f64 * param(11, 0.0)) as usize {
                return (0, first);
            }
        }
        // smallest skip with fits >= target (fits is nondecreasing up to `low`)
        let (mut l, mut h) = (0, low);
        while l < h {
            let m = (l + h) / 2;
            if fits(m) >= target { h = m } else { l = m + 1 }
        }
        let size = if l < waiting { fits(l) } else { 0 };
        (l, size)
    }
}

/// Sakasegawa
pub fn idle_price(load: f64, executors: usize) -> f64 {
    let exponent = ((2.0 * (executors as f64 + 1.0)).sqrt() - 1.0) * param(2, 1.0);
    load.clamp(0.0, 1.0).powf(exponent)
}
