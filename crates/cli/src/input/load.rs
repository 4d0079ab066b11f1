//! What files say of a model and its load: how long batches take, and when requests come.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fermata_core::{Profile, Span};
use fermata_files::{Checker, InputError, Measured};
use fermata_plan::shares::on_share;
use fermata_sim::Arrivals;
use fermata_workload::{Process, Rate, Recording};

use super::profile::{self, Read};

/// The keys that say how long batches take, of which one way must be chosen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatencyKeys<'a> {
    pub(crate) alpha_ms: Option<f64>,
    pub(crate) beta_ms: Option<f64>,
    pub(crate) latency_ms: Option<&'a [f64]>,
    pub(crate) profile: Option<&'a str>,
}

/// How long batches take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Latency {
    /// A batch of `b` takes `alpha b + beta`.
    Line { alpha: Span, beta: Span },
    /// Measured.
    Table(Profile),
    /// Measured on shares of a GPU.
    Shares(Arc<OfFile>),
}

/// What a file says of a model on shares of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfFile {
    pub(crate) file: PathBuf,
    pub(crate) measured: Measured,
}

impl LatencyKeys<'_> {
    /// Whether none of them is there.
    pub(crate) fn is_empty(&self) -> bool {
        let line = self.alpha_ms.or(self.beta_ms);
        line.is_none() && self.latency_ms.is_none() && self.profile.is_none()
    }

    /// What they say of this model.
    pub(crate) fn check(&self, checker: &Checker<'_>, model: &str) -> Result<Latency, InputError> {
        match (self.latency_ms, self.profile, self.alpha_ms, self.beta_ms) {
            (Some(table), None, None, None) => {
                for &latency in table {
                    checker.positive("latency_ms", latency)?;
                }
                let table = table.iter().map(|&latency| Span::from_ms(latency));
                Profile::from_table(table)
                    .map(Latency::Table)
                    .map_err(|error| checker.refuse("latency_ms", error.to_string()))
            }
            (None, Some(file), None, None) => {
                // A path in a file is meant as seen from that file.
                let file = checker.file.parent().unwrap_or(Path::new("")).join(file);
                match profile::read(&file, model) {
                    Ok(Read::Table(profile)) => Ok(Latency::Table(profile)),
                    Ok(Read::Shares(measured)) => {
                        Ok(Latency::Shares(Arc::new(OfFile { file, measured })))
                    }
                    Err(reason) => Err(checker.refuse("profile", reason)),
                }
            }
            (None, None, Some(alpha), Some(beta)) => {
                let alpha = Span::from_ms(checker.not_negative("alpha_ms", alpha)?);
                let beta = Span::from_ms(checker.not_negative("beta_ms", beta)?);
                Profile::linear(alpha, beta, Span::ZERO)
                    .map(|_| Latency::Line { alpha, beta })
                    .map_err(|error| checker.refuse("alpha_ms", error.to_string()))
            }
            (Some(_), ..) => Err(checker.refuse(
                "latency_ms",
                "cannot be given together with alpha_ms, beta_ms or profile",
            )),
            (None, Some(_), ..) => {
                Err(checker.refuse("profile", "cannot be given together with alpha_ms or beta_ms"))
            }
            (None, None, None, None) => Err(checker.refuse(
                "alpha_ms",
                "missing: give alpha_ms and beta_ms, or latency_ms, or profile",
            )),
            (None, None, None, _) => Err(checker.refuse("alpha_ms", "missing")),
            (None, None, _, None) => Err(checker.refuse("beta_ms", "missing")),
        }
    }
}

impl Latency {
    /// As a table, with all sizes that finish within `longest`, and at least one.
    pub(crate) fn profile(&self, longest: Span) -> Profile {
        match self {
            Self::Line { alpha, beta } => Profile::linear(*alpha, *beta, longest)
                .expect("a batch of one was seen to take some time"),
            Self::Table(profile) => profile.clone(),
            Self::Shares(of) => of.measured.on_share(100),
        }
    }

    /// The same on a share of a GPU: as it was measured, or reckoned from the whole.
    pub(crate) fn on_share(&self, longest: Span, percent: u32) -> Profile {
        match self {
            Self::Shares(of) => of.measured.on_share(percent),
            Self::Line { .. } | Self::Table(_) => {
                on_share(&self.profile(longest), percent, usize::MAX)
            }
        }
    }
}

/// When requests come: the text of `arrivals` at a rate.
pub(crate) fn arrivals(
    checker: &Checker<'_>,
    text: &str,
    rate: Option<f64>,
) -> Result<Arrivals, InputError> {
    let rate = rate.map(|rate| checker.rate(rate)).transpose()?;
    if let Some(trace) = text.strip_prefix("trace:") {
        // A path in a file is meant as seen from that file.
        let trace = checker.file.parent().unwrap_or(Path::new("")).join(trace);
        let recording = Recording::read(&trace)
            .map_err(|error| checker.refuse("arrivals", error.to_string()))?;
        let rate = rate.unwrap_or(recording.rate());
        return Ok(Arrivals::Table(recording.gaps(), Rate::Constant(rate)));
    }
    let process: Process =
        text.parse().map_err(|error| checker.refuse("arrivals", format!("{error}")))?;
    Ok(Arrivals::Process(process, Rate::Constant(checker.required("rate", rate)?)))
}

/// The names of so many copies of a model.
pub(crate) fn copies_of(name: &str, copies: usize) -> Vec<String> {
    match copies {
        1 => vec![name.to_owned()],
        several => (1..=several).map(|copy| format!("{name}-{copy}")).collect(),
    }
}

/// The usual `arrivals`.
pub(crate) fn poisson() -> String {
    "poisson".to_owned()
}

/// The usual `copies`.
pub(crate) fn one() -> i64 {
    1
}
