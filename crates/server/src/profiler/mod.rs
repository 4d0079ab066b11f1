//! How long batches take: measured once, kept beside the model, corrected while serving.

mod cache;
mod correct;
mod kept_lengths;
mod key;
mod lengths;
mod measure;
pub(crate) mod online;
mod stretch;
mod table;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use fermata_core::{Growth, KindId, Profile, Span, Spread, SpreadError, Time};
use fermata_dispatch::ModelSpec;
use fermata_engine::{Engine, EngineError, Session, Signature, Source};
use fermata_pool::{ProfileLearner, Profiles};
use fermata_repository::RunTime;

pub use cache::{Cache, Home};
pub use correct::Corrector;
pub use key::{CacheKey, content_hash};
pub use lengths::LengthTable;
pub use measure::{Options, Step, measure, ones, warm};
pub use stretch::Stretch;
pub use table::{Latency, Measured, Planned, Stop};

use crate::kinds::KindRule;
use online::Ledger;
pub(crate) use watch::Watch;
use watch::time;

/// Keeps a profile true while serving, by what batches take.
#[derive(Clone, Debug)]
pub enum Correction {
    /// One number for each size.
    Point(Corrector),
    /// Distributions.
    Spread(Stretch),
}

impl Correction {
    /// Begins with a profile of a model with this SLO.
    pub fn new(profile: Profile, slo: Span, planned: Planned) -> Self {
        match profile.spread() {
            Some(spread) => Self::Spread(Stretch::new(spread.clone(), slo)),
            None => Self::Point(Corrector::new(profile, slo, planned)),
        }
    }
}

impl ProfileLearner for Correction {
    fn observe(&mut self, now: Time, size: usize, latency: Span, took: Span) -> Option<Profile> {
        match self {
            Self::Point(corrector) => corrector.observe(now, size, took),
            Self::Spread(stretch) => stretch.observe(now, latency, took),
        }
    }

    fn rebase(&mut self, spread: Arc<Spread>, slo: Span) -> Profile {
        match self {
            Self::Point(_) => {
                let stretch = Stretch::new(spread, slo);
                let profile = stretch.profile();
                *self = Self::Spread(stretch);
                profile
            }
            Self::Spread(stretch) => stretch.rebase(spread),
        }
    }
}

/// Profiles that were measured, and follow what batches take.
pub(crate) fn followed(planned: Planned) -> Profiles {
    Profiles::Measured(match planned {
        Planned::Median => |profile, slo| Box::new(Correction::new(profile, slo, Planned::Median)),
        Planned::Tail => |profile, slo| Box::new(Correction::new(profile, slo, Planned::Tail)),
    })
}

/// What is known of a model before its first request comes.
pub(crate) struct Known {
    /// What it is dispatched by.
    pub(crate) profile: Profile,
    /// What tells its requests apart.
    pub(crate) rule: KindRule,
    /// What its requests take alone, to go on from.
    pub(crate) ledger: Ledger,
}

impl Known {
    /// Of a model of which a profile is known.
    pub(crate) fn of(profile: Profile, run_time: Option<RunTime>) -> Self {
        let (rule, kinds, profile) = match (run_time, profile.spread()) {
            (Some(RunTime::Point), Some(spread)) => (KindRule::Alike, 1, spread.profile()),
            (Some(RunTime::Point), None) => (KindRule::Alike, 1, profile),
            (Some(RunTime::Spread) | None, _) => {
                (KindRule::ByApplication, KindRule::APPLICATIONS, profile)
            }
        };
        let spread = profile.spread().cloned();
        let growth = spread.as_ref().map_or_else(|| growth(&profile), |spread| *spread.growth());
        let always = run_time == Some(RunTime::Spread);
        let ledger = Ledger::new(kinds, growth, profile.max_batch(), always, spread);
        Self { profile, rule, ledger }
    }
}

/// What is known of a model, from what is kept or else from what is measured now, and a session in
/// which every size of it has run. `shapes` are those of inputs that may have any.
#[expect(clippy::too_many_arguments, reason = "the parts of one thing, named at its only caller")]
pub(crate) fn cached_or_measured(
    engine: &dyn Engine,
    source: &Source,
    session: &mut dyn Session,
    signature: &Signature,
    slo: Span,
    shapes: &BTreeMap<String, Vec<i64>>,
    run_time: Option<RunTime>,
    watch: Watch,
) -> Result<Known, EngineError> {
    let by_length = signature.length.as_ref().is_some_and(|length| match run_time {
        // One number for each size, measured with the shape that the settings have: whoever asks
        // for that gets it.
        Some(RunTime::Point) => length.padding.is_some() && shapes.is_empty(),
        Some(RunTime::Spread) => true,
        // Without padding only equal requests share a batch, and whoever sends nothing else must
        // lose nothing.
        None => length.padding.is_some(),
    });
    if by_length {
        let table =
            cached_or_measured_lengths(engine, source, session, signature, slo, shapes, watch)?;
        match of_lengths(&table, signature, run_time) {
            Ok(known) => return Ok(known),
            Err(reason) => {
                let file = source.file.display();
                tracing::warn!(%file, %reason, "lengths tell nothing: one latency for each batch \
                    size");
            }
        }
    }
    let options = Options { shapes: shapes.clone(), budget: watch.budget() };
    let cache = Cache::of(&source.file);
    let key = CacheKey::of(engine, source, signature, &options)?;
    let kept = cache.load(&key, slo, signature.max_batch);
    if let Some(measured) = kept.filter(|kept| kept.fits(|size| session.runs_as(size))) {
        warm(session, signature, measured.max_batch(), shapes)?;
        return Ok(Known::of(measured.profile(Planned::of(engine)), run_time));
    }
    let file = source.file.display();
    tracing::info!(%file, "measuring latency by batch size");
    let measured = measure(session, signature, slo, &options, &mut |_| {})?;
    if let Stop::Failed(reason) = &measured.stop {
        let largest = measured.max_batch();
        tracing::warn!(%file, largest, reason, "larger batches fail");
    }
    if let Err(error) = cache.store(&key, &measured) {
        tracing::warn!(%file, %error, "the profile cannot be kept");
    }
    Ok(Known::of(measured.profile(Planned::of(engine)), run_time))
}

fn cached_or_measured_lengths(
    engine: &dyn Engine,
    source: &Source,
    session: &mut dyn Session,
    signature: &Signature,
    slo: Span,
    shapes: &BTreeMap<String, Vec<i64>>,
    watch: Watch,
) -> Result<LengthTable, EngineError> {
    let options = Options { shapes: shapes.clone(), ..Options::default() };
    let cache = Cache::of(&source.file);
    let key = CacheKey::of(engine, source, signature, &options)?;
    if let Some(table) = cache.load_lengths(&key, slo) {
        lengths::warm(session, signature, &table, shapes)?;
        return Ok(table);
    }
    let file = source.file.display();
    tracing::info!(%file, "measuring latency by length and batch size");
    let table = lengths::measure(session, signature, slo, shapes, watch)?;
    if let Some(longest) = table.limit {
        tracing::info!(%file, longest, "longer requests fail, and are refused");
    }
    if let Err(error) = cache.store_lengths(&key, &table) {
        tracing::warn!(%file, %error, "the profile cannot be kept");
    }
    Ok(table)
}

/// What is known of a model whose requests have a length.
fn of_lengths(
    table: &LengthTable,
    signature: &Signature,
    run_time: Option<RunTime>,
) -> Result<Known, SpreadError> {
    let padded = signature.length.as_ref().is_some_and(|length| length.padding.is_some());
    let growth = match padded {
        true => table.growth(),
        // Requests that differ in length run one after the other.
        false => Growth { fixed: 0.0, base: 0.0, each: 1.0 },
    };
    let (ranges, max_batch) = (table.lengths(), table.max_batch(signature.max_batch));
    let runs = table.runs(&ranges);
    let spread = Arc::new(Spread::new(&runs, growth, max_batch)?);
    if run_time == Some(RunTime::Point) {
        return Ok(Known::of(spread.profile(), run_time));
    }
    let mut ledger = Ledger::new(ranges.count(), growth, max_batch, true, Some(spread.clone()));
    ledger.seed(&runs);
    Ok(Known { profile: Profile::spread_out(spread), rule: KindRule::ByLength(ranges), ledger })
}

/// How batches grow of a model of which one number for each size is known.
fn growth(profile: &Profile) -> Growth {
    let sizes = 1..=profile.max_batch();
    let batches: Vec<_> =
        sizes.map(|size| (size, profile.shortest(), profile.latency(size))).collect();
    Growth::fit(&batches).unwrap_or(Growth::FREE)
}

/// The least that any request takes on the fastest class.
pub(crate) fn shortest_of(spec: &ModelSpec) -> Option<Span> {
    spec.profiles.iter().flatten().map(|profile| shortest(profile)).min()
}

/// The least that any request takes.
pub(crate) fn shortest(profile: &Profile) -> Span {
    let Some(spread) = profile.spread() else { return profile.shortest() };
    let kinds = (0..spread.kinds() as u16).map(|kind| spread.shortest(KindId(kind)));
    kinds.min().unwrap_or_else(|| profile.shortest())
}
