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
}

impl Tuning {
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
        let star = profile.cost(target);
        self.load = pace.rate() * star;
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
        self.patience = pace.patience(saving, price);
    }

    #[inline]
    pub(crate) fn ready(&self, frontrun: Time, now: Time, pace: &Pace) -> Time {
        let _ = now;
        frontrun.min(pace.last() + Span(self.patience))
    }

    #[inline]
    pub(crate) fn urgency(&self, latest: Time, _signal: &Signal) -> Time {
        latest
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
        let tol = param(4, 0.1) * (1.0 - signal.load.powf(param(6, 8.0))).max(0.0);
        let limit = profile.cost(gathered) * (1.0 + tol);
        let least = (gathered as f64 * param(5, 0.4)).ceil() as usize;
        let (mut tl, mut th) = (least.max(1), gathered);
        while tl < th {
            let m = (tl + th) / 2;
            if profile.cost(m) <= limit { th = m } else { tl = m + 1 }
        }
        let target = tl;
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
