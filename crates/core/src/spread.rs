//! How run times are spread: a distribution for each kind of request, and how batches of them grow.

use std::fmt;

use crate::distribution::{Distribution, Grid};
use crate::{Growth, KindId, Span};

/// What is known of a model whose run time depends on its input, on one class of executor.
#[derive(Clone, PartialEq)]
pub struct Spread {
    grid: Grid,
    growth: Growth,
    kinds: Box<[Kind]>,
    /// Of a request of whatever kind.
    mixture: Distribution,
    /// The squared coefficient of variation of what requests take alone.
    variation: f64,
    max_batch: usize,
}

/// Requests that run alike: those of one application, or of one range of input sizes.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    /// How long one takes that runs alone.
    alone: Distribution,
    /// Of all requests, how many are of this kind.
    share: f32,
    /// The mean, for ordering kinds.
    mean: f32,
    /// The least that one takes, in nanoseconds: what has less time left is hopeless.
    shortest: f32,
}

/// What was measured of the kinds of a model: for each, its share of all requests and the runs of
/// some of them, alone.
pub type Measured = Vec<(f32, Vec<Span>)>;

/// Why a spread was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadError {
    /// No kind has a run that took any time.
    Empty,
    /// There are more kinds than can be told apart.
    TooMany(usize),
    /// The largest batch is zero.
    NoBatch,
}

/// More kinds than this would make a decision slow.
pub const KINDS_MAX: usize = 64;

/// A run is not taken to be longer than this many times the median: a tail without end would leave
/// no bins for the rest.
const LONGEST_OF_MEDIAN: u64 = 1000;

/// Runs that differ by no more than this factor are the same.
const POINT: f64 = 1.001;

/// A run is shorter than this once in a thousand times: who has less time left is hopeless.
const HOPELESS: f32 = 0.001;

impl Spread {
    /// From runs that were measured alone, by kind. A kind without runs is taken to be like all
    /// others together. Runs that are absurdly long count as a thousand times the median.
    pub fn new(measured: &Measured, growth: Growth, max_batch: usize) -> Result<Self, SpreadError> {
        if measured.len() > KINDS_MAX {
            return Err(SpreadError::TooMany(measured.len()));
        }
        if max_batch == 0 {
            return Err(SpreadError::NoBatch);
        }
        let mut all: Vec<Span> =
            measured.iter().flat_map(|(_, runs)| runs).copied().filter(|run| run.0 > 0).collect();
        all.sort_unstable();
        let (Some(&shortest), Some(&longest)) = (all.first(), all.last()) else {
            return Err(SpreadError::Empty);
        };
        let longest = longest.min(all[all.len() / 2] * LONGEST_OF_MEDIAN);
        let grid = Grid::new(shortest, longest);
        let own = |runs: &[Span]| {
            Distribution::from_runs(&grid, runs.iter().copied().filter(|run| run.0 > 0))
        };
        let known: Vec<Option<Distribution>> = measured.iter().map(|(_, runs)| own(runs)).collect();
        let parts = measured.iter().zip(&known);
        let parts = parts.filter_map(|((share, _), known)| Some((share.max(0.0), known.as_ref()?)));
        let mixture = match parts.clone().map(|(share, _)| share).sum::<f32>() > 0.0 {
            true => Distribution::mixed(parts),
            false => Distribution::mixed(parts.map(|(_, known)| (1.0, known))),
        };
        let kinds = measured.iter().zip(known);
        let kinds = kinds.map(|((share, _), known)| (share.max(0.0), known.unwrap_or(mixture)));
        Ok(Self::made_of(grid, growth, kinds, mixture, max_batch))
    }

    fn made_of(
        grid: Grid,
        growth: Growth,
        kinds: impl IntoIterator<Item = (f32, Distribution)>,
        mixture: Distribution,
        max_batch: usize,
    ) -> Self {
        let kinds = kinds.into_iter().map(|(share, alone)| {
            let shortest = alone.quantile(&grid, HOPELESS);
            Kind { alone, share, mean: alone.mean(&grid), shortest }
        });
        let variation = mixture.variation(&grid);
        Self { kinds: kinds.collect(), grid, growth, mixture, variation, max_batch }
    }

    /// From what was written down of one: its grid, its growth, each kind's share and distribution,
    /// the mixture. `None` if this cannot be of one.
    pub fn from_parts(
        grid: Grid,
        growth: Growth,
        kinds: Vec<(f32, Distribution)>,
        mixture: Distribution,
        max_batch: usize,
    ) -> Option<Self> {
        let Growth { fixed, base, each } = growth;
        let sound = [fixed, base, each].iter().all(|value| value.is_finite() && *value >= 0.0);
        let shares = kinds.iter().all(|(share, _)| share.is_finite() && *share >= 0.0);
        let sizes = (1..=KINDS_MAX).contains(&kinds.len()) && max_batch > 0;
        (sound && base + each > 0.0 && shares && sizes)
            .then(|| Self::made_of(grid, growth, kinds, mixture, max_batch))
    }

    /// The same runs alone, in batches that grow otherwise.
    pub fn with_growth(&self, growth: Growth) -> Self {
        Self { growth, ..self.clone() }
    }

    /// The same with another largest batch, which must not be zero.
    pub fn with_max_batch(&self, max_batch: usize) -> Self {
        assert!(max_batch > 0, "there is a batch size");
        Self { max_batch, ..self.clone() }
    }

    /// The grid of all distributions.
    #[inline]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// How batches grow.
    #[inline]
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Whether all requests take the same: then a table says all there is to say.
    pub fn is_point(&self) -> bool {
        self.grid.longest().0 as f64 <= self.grid.shortest().0 as f64 * POINT
    }

    /// The squared coefficient of variation of what requests take alone.
    pub fn variation(&self) -> f64 {
        self.variation
    }

    /// How many kinds there are.
    #[inline]
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The largest batch that may be run.
    #[inline]
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// How long a request of a kind takes that runs alone; that of any request, where the kind is
    /// not known.
    #[inline]
    pub fn alone(&self, kind: KindId) -> &Distribution {
        self.kinds.get(kind.index()).map_or(&self.mixture, |kind| &kind.alone)
    }

    /// How long a request takes alone, of whatever kind.
    #[inline]
    pub fn mixture(&self) -> &Distribution {
        &self.mixture
    }

    /// The share of a kind in all requests.
    pub fn share(&self, kind: KindId) -> f32 {
        self.kinds.get(kind.index()).map_or(0.0, |kind| kind.share)
    }

    /// The mean of what a request of a kind takes alone, in nanoseconds.
    pub fn mean(&self, kind: KindId) -> f32 {
        self.kinds.get(kind.index()).map_or_else(|| self.mixture.mean(&self.grid), |kind| kind.mean)
    }

    /// The least that a batch of one takes with a request of this kind.
    pub fn shortest(&self, kind: KindId) -> Span {
        let alone = match self.kinds.get(kind.index()) {
            Some(kind) => kind.shortest,
            None => self.mixture.quantile(&self.grid, HOPELESS),
        };
        Span(self.growth.latency_ns(1, alone) as u64)
    }
}

// Nothing in it can be a NaN: counts over their sum, and what was measured.
impl Eq for Spread {}

impl fmt::Debug for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kinds, from, to) = (self.kinds.len(), self.grid.shortest(), self.grid.longest());
        write!(f, "Spread({kinds} kinds of {from} to {to} alone)")
    }
}

impl fmt::Display for SpreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a distribution needs at least one run that took any time"),
            Self::TooMany(kinds) => {
                write!(f, "{kinds} kinds of requests: there may be {KINDS_MAX}")
            }
            Self::NoBatch => write!(f, "the largest batch is zero"),
        }
    }
}

impl std::error::Error for SpreadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BINS;

    fn ms(list: &[f64]) -> Vec<Span> {
        list.iter().map(|&ms| Span::from_ms(ms)).collect()
    }

    #[test]
    fn a_kind_without_runs_is_like_all_others() {
        let measured = vec![(0.5, ms(&[10.0, 12.0])), (0.5, ms(&[90.0, 110.0])), (0.0, Vec::new())];
        let spread = Spread::new(&measured, Growth::FREE, 4).unwrap();
        assert!(spread.mean(KindId(0)) < spread.mean(KindId(2)));
        assert!(spread.mean(KindId(2)) < spread.mean(KindId(1)));
        assert_eq!(spread.alone(KindId(2)), spread.mixture());
        assert_eq!(spread.alone(KindId(9)), spread.mixture(), "an unknown kind too");
        let profile = spread.profile();
        assert_eq!(profile.max_batch(), 4);
        assert!(profile.latency(1) < profile.latency(4));
    }

    #[test]
    fn a_spread_is_made_again_of_its_parts() {
        let measured = vec![(0.3, ms(&[10.0, 12.0])), (0.7, ms(&[90.0, 110.0])), (0.0, Vec::new())];
        let growth = Growth { fixed: 3.0, base: 0.8, each: 0.2 };
        let spread = Spread::new(&measured, growth, 4).unwrap();
        let (low, high) = spread.grid().ends();
        let grid = Grid::from_ends(low, high).unwrap();
        let again = |kind| {
            let kind = KindId(kind);
            let alone = Distribution::from_ended(*spread.alone(kind).ended()).unwrap();
            (spread.share(kind), alone)
        };
        let kinds: Vec<_> = (0..3).map(again).collect();
        let made = |growth, kinds| Spread::from_parts(grid, growth, kinds, *spread.mixture(), 4);
        assert_eq!(made(growth, kinds.clone()).as_ref(), Some(&spread));
        assert_eq!(made(growth, Vec::new()), None);
        assert_eq!(made(Growth { each: f64::NAN, ..growth }, kinds), None);
        assert_eq!((Grid::from_ends(2.0, 2.0), Grid::from_ends(f32::NAN, 9.0)), (None, None));
        assert_eq!(Distribution::from_ended([f32::NAN; BINS + 1]), None);
        assert_eq!(Distribution::from_ended([0.5; BINS + 1]), None);
        assert_eq!(spread.with_growth(Growth::FREE).growth(), &Growth::FREE);
    }

    #[test]
    fn bad_input_is_refused_or_bounded() {
        let spread =
            |measured: Measured, max_batch| Spread::new(&measured, Growth::FREE, max_batch);
        assert_eq!(spread(vec![], 4), Err(SpreadError::Empty));
        assert_eq!(spread(vec![(1.0, vec![Span::ZERO])], 4), Err(SpreadError::Empty));
        assert_eq!(spread(vec![(1.0, ms(&[1.0]))], 0), Err(SpreadError::NoBatch));
        assert_eq!(spread(vec![(1.0, ms(&[1.0])); 65], 4), Err(SpreadError::TooMany(65)));
        let mut runs = ms(&[1.0; 99]);
        runs.push(Span::MAX);
        let bounded = spread(vec![(1.0, runs)], 4).unwrap();
        assert!(bounded.grid().longest() < Span::from_ms(1001.0));
    }
}
