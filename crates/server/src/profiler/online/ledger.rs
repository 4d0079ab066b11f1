//! What a model's requests took alone, by kind, and when that is news: no clock, no thread.

use std::sync::Arc;

use fermata_core::{Growth, History, KindId, Measured, Span, Spread, SpreadError};

/// Fewer runs of a model do not tell whether its run time depends on the input.
const RUNS_MIN: usize = 32;
/// A kind with fewer runs is taken to be like all others.
const OWN_MIN: usize = 8;
/// A model whose runs differ by less than this, from one in twenty to nineteen in twenty, has one
/// run time: it is dispatched by what was measured of its batches.
const WIDE: f64 = 1.25;
/// A quantile that moved by less is no news; nor is a share.
const MOVED: f32 = 0.05;
const SHARE_MOVED: f32 = 0.1;
/// A run that is so many times the median is a tail without end.
const ENDLESS: u64 = 1000;

/// The runs of one model.
#[derive(Debug)]
pub(crate) struct Ledger {
    histories: Vec<History>,
    growth: Growth,
    max_batch: usize,
    /// It is dispatched by distributions however alike its runs are.
    always: bool,
    published: Option<Arc<Spread>>,
    /// Whoever was told is not there any more.
    untold: bool,
    /// It was said that a run was absurdly long.
    warned: bool,
}

impl Ledger {
    /// Of a model with so many kinds, of which this was published, if anything was.
    pub(crate) fn new(
        kinds: usize,
        growth: Growth,
        max_batch: usize,
        always: bool,
        published: Option<Arc<Spread>>,
    ) -> Self {
        let histories = vec![History::default(); kinds];
        Self { histories, growth, max_batch, always, published, untold: false, warned: false }
    }

    /// Begins with what was measured before.
    pub(crate) fn seed(&mut self, measured: &Measured) {
        for (history, (_, runs)) in self.histories.iter_mut().zip(measured) {
            for &run in runs {
                history.note(run);
            }
        }
    }

    /// Notes what a request took alone.
    pub(crate) fn note(&mut self, model: &str, kind: KindId, run: Span) {
        let Some(history) = self.histories.get_mut(kind.index()) else { return };
        if !self.warned && is_endless(history, run) {
            self.warned = true;
            let (kind, run_ms) = (kind.0, run.as_ms());
            tracing::warn!(
                model,
                kind,
                run_ms,
                "a request ran absurdly long alone: such runs count as {ENDLESS} times the median"
            );
        }
        if history.note(run) {
            tracing::info!(model, kind = kind.0, "requests run otherwise than before");
        }
    }

    /// How run times are spread, if that is news. `came` is how many requests of each kind came.
    pub(crate) fn news(&mut self, came: &[u64]) -> Option<Arc<Spread>> {
        let total: usize = self.histories.iter().map(History::len).sum();
        if total < RUNS_MIN || !(self.always || self.published.is_some() || self.is_wide()) {
            return None;
        }
        let spread = self.spread(came).ok()?;
        let moved = self.published.as_ref().is_none_or(|before| has_moved(before, &spread));
        if !moved && !self.untold {
            return None;
        }
        self.untold = false;
        let spread = Arc::new(spread);
        self.published = Some(spread.clone());
        Some(spread)
    }

    /// What was told last.
    #[cfg(test)]
    pub(super) fn published(&self) -> Option<&Arc<Spread>> {
        self.published.as_ref()
    }

    /// What was told is to be told once more.
    pub(crate) fn tell_again(&mut self) {
        self.untold = true;
    }

    fn spread(&self, came: &[u64]) -> Result<Spread, SpreadError> {
        let all = came.iter().sum::<u64>().max(1) as f32;
        let shares = came.iter().map(|&count| count as f32 / all).chain(std::iter::repeat(0.0));
        let runs = |history: &History| match history.len() {
            0..OWN_MIN => Vec::new(),
            _ => history.runs().collect(),
        };
        let mut measured: Measured =
            shares.zip(&self.histories).map(|(share, history)| (share, runs(history))).collect();
        // Applications that never asked are no kinds yet.
        let used = measured.iter().rposition(|(share, runs)| *share > 0.0 || !runs.is_empty());
        measured.truncate(used.map_or(1, |last| last + 1));
        if measured.iter().all(|(_, runs)| runs.is_empty()) {
            // Many kinds with a run or two each: together they say something.
            measured[0].1 = self.histories.iter().flat_map(History::runs).collect();
        }
        Spread::new(&measured, self.growth, self.max_batch)
    }

    /// Whether requests differ in what they take.
    fn is_wide(&self) -> bool {
        let mut runs: Vec<Span> = self.histories.iter().flat_map(History::runs).collect();
        runs.sort_unstable();
        let at = |part: usize| runs[runs.len() * part / 20].0 as f64;
        at(19) > WIDE * at(1)
    }
}

fn is_endless(history: &History, run: Span) -> bool {
    if history.len() < OWN_MIN {
        return false;
    }
    let mut runs: Vec<Span> = history.runs().collect();
    let middle = runs.len() / 2;
    let median = *runs.select_nth_unstable(middle).1;
    run > median * ENDLESS
}

/// Whether the two would lead to other decisions.
fn has_moved(before: &Spread, after: &Spread) -> bool {
    let kinds = (0..after.kinds() as u16).map(KindId);
    before.kinds() != after.kinds()
        || kinds.into_iter().any(|kind| {
            let (one, other) = (before.alone(kind), after.alone(kind));
            let quantile = |probability| {
                let one = one.quantile(before.grid(), probability);
                let other = other.quantile(after.grid(), probability);
                (other / one - 1.0).abs() > MOVED
            };
            [0.1, 0.5, 0.9].into_iter().any(quantile)
                || (before.share(kind) - after.share(kind)).abs() > SHARE_MOVED
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(kinds: usize) -> Ledger {
        Ledger::new(kinds, Growth::FREE, 4, false, None)
    }

    fn note(ledger: &mut Ledger, kind: u16, ms: f64, count: usize) {
        for at in 0..count {
            let jitter = 1.0 + (at % 7) as f64 / 1000.0;
            ledger.note("m", KindId(kind), Span::from_ms(ms * jitter));
        }
    }

    #[test]
    fn a_model_whose_requests_run_alike_stays_a_point() {
        let mut ledger = ledger(3);
        assert_eq!(ledger.news(&[0, 0, 0]), None, "nothing was measured");
        note(&mut ledger, 1, 10.0, 100);
        note(&mut ledger, 2, 10.1, 100);
        assert_eq!(ledger.news(&[0, 100, 100]), None);
        let mut always = Ledger { always: true, ..ledger };
        assert_eq!(always.news(&[0, 100, 100]).unwrap().kinds(), 3);
    }

    #[test]
    fn kinds_are_learned_and_news_are_told_once() {
        let mut ledger = ledger(3);
        note(&mut ledger, 1, 10.0, 20);
        assert_eq!(ledger.news(&[0, 20, 0]), None, "too few");
        note(&mut ledger, 2, 50.0, 20);
        let spread = ledger.news(&[0, 30, 10]).unwrap();
        let mean = |kind| spread.mean(KindId(kind)) / 1e6;
        assert!((mean(1) / 10.0 - 1.0).abs() < 0.05, "{}", mean(1));
        assert!((mean(2) / 50.0 - 1.0).abs() < 0.05, "{}", mean(2));
        assert_eq!(spread.kinds(), 3);
        assert!((15.0..30.0).contains(&mean(0)), "one that was not seen is like all: {}", mean(0));
        assert_eq!(ledger.news(&[0, 30, 10]), None, "it was told");
        note(&mut ledger, 2, 50.0, 20);
        assert_eq!(ledger.news(&[0, 31, 11]), None, "nothing new");
        note(&mut ledger, 2, 80.0, 200);
        let later = ledger.news(&[0, 30, 10]).unwrap();
        assert!(later.mean(KindId(2)) / 1e6 > 70.0);
    }

    #[test]
    fn runs_without_end_are_bounded_and_kinds_without_number_ignored() {
        let mut ledger = ledger(1);
        note(&mut ledger, 0, 1.0, 50);
        ledger.note("m", KindId(0), Span::MAX);
        ledger.note("m", KindId(9), Span::MAX);
        assert!(ledger.warned);
        note(&mut ledger, 0, 2.0, 50);
        let spread = ledger.news(&[1]).unwrap();
        assert!(spread.grid().longest() <= Span::from_ms(2100.0));
    }

    #[test]
    fn what_was_measured_at_load_is_where_it_begins() {
        let seeds: Measured =
            vec![(0.5, vec![Span::from_ms(5.0); 64]), (0.5, vec![Span::from_ms(9.0); 64])];
        let first = Arc::new(Spread::new(&seeds, Growth::FREE, 4).unwrap());
        let mut ledger = Ledger::new(2, Growth::FREE, 4, false, Some(first));
        ledger.seed(&seeds);
        note(&mut ledger, 0, 5.0, 20);
        assert_eq!(ledger.news(&[10, 10]), None);
        note(&mut ledger, 0, 7.0, 64);
        let spread = ledger.news(&[10, 10]).unwrap();
        assert!(spread.alone(KindId(0)).quantile(spread.grid(), 0.9) > 6.9e6);
    }
}
