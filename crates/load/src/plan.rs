//! Checked arguments: what is to be done, before anything is asked of the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fermata_files::{InputError, SECONDS_MAX, duration, in_one_line, output};
use fermata_workload::{GapTable, Process, Recording};

use super::args::{LoadArgs, Passed};
use crate::client::Target;

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    pub(super) models: Vec<ModelPlan>,
    pub(super) mode: Mode,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    /// How often a rate is tried before it is too much.
    pub(super) tries: usize,
    pub(super) timeout: Duration,
    pub(super) connections: usize,
    pub(super) threads: usize,
    pub(super) seed: u64,
    pub(super) inputs: InputPlan,
}

/// One model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelPlan {
    pub(super) name: String,
    /// Requests a second; its share of the load in a search; unused in a closed loop.
    pub(super) rate: f64,
    pub(super) slo: Option<Duration>,
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    /// So many at any time.
    Closed { concurrency: usize },
    /// When they are due.
    Open { spread: Spread },
    /// When they are due, at rates that are searched for.
    Goodput { spread: Spread },
}

/// How arrivals are spread, whatever their rate.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    Process(Process),
    Recorded(GapTable),
}

/// What to send.
#[derive(Clone, Debug, Default)]
pub(super) struct InputPlan {
    pub(super) batch: i64,
    pub(super) zeros: bool,
    pub(super) send_timeout: bool,
    /// Which tensors go through shared memory, if any.
    pub(super) shared_memory: Option<Passed>,
    pub(super) shapes: Vec<(String, Vec<i64>)>,
    pub(super) files: Vec<(String, PathBuf)>,
}

const RATE_MAX: f64 = 1e6;
/// Where a search begins if nobody says.
const FIRST_RATE: f64 = 100.0;

impl Plan {
    /// Checks what was said.
    pub(super) fn of(args: &LoadArgs) -> Result<Self, InputError> {
        let target = Target::parse(&args.url)?;
        let slo = args.slo_ms.map(|ms| milliseconds("--slo-ms", ms)).transpose()?;
        let (spread, recorded_rate) = spread(&args.arrivals)?;
        let asked =
            args.models.iter().map(|text| Asked::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if let Some(twice) = asked
            .iter()
            .enumerate()
            .find(|(at, model)| asked[..*at].iter().any(|other| other.name == model.name))
        {
            return Err(refuse("MODEL", format!("'{}' is given twice", twice.1.name)));
        }
        let mode = match (args.concurrency, args.goodput) {
            (Some(_), true) => {
                return Err(refuse("--concurrency", "cannot be given together with --goodput"));
            }
            (Some(_), _) if args.rate.is_some() => {
                return Err(refuse("--concurrency", "cannot be given together with --rate"));
            }
            (Some(concurrency), _) => {
                Mode::Closed { concurrency: count("--concurrency", concurrency, 100_000)? }
            }
            (None, true) => Mode::Goodput { spread },
            (None, false) => Mode::Open { spread },
        };
        let rate = args.rate.map(|rate| checked_rate("--rate", rate)).transpose()?;
        let rates = rates(&asked, rate, recorded_rate, &mode)?;
        let models: Vec<ModelPlan> = asked
            .into_iter()
            .zip(rates)
            .map(|(model, rate)| ModelPlan { slo: model.slo.or(slo), name: model.name, rate })
            .collect();
        if let (true, Some(model)) = (args.goodput, models.iter().find(|model| model.slo.is_none()))
        {
            return Err(refuse("--goodput", format!("needs --slo-ms, or {}@SLO_MS", model.name)));
        }
        if args.send_timeout && models.iter().any(|model| model.slo.is_none()) {
            return Err(refuse("--send-timeout", "needs --slo-ms"));
        }
        let longest =
            models.iter().filter_map(|model| model.slo).max().unwrap_or(Duration::from_secs(10));
        let timeout = match args.timeout_ms {
            Some(ms) => milliseconds("--timeout-ms", ms)?,
            None => (4 * longest).max(Duration::from_secs(1)),
        };
        if let Some(out) = &args.plot {
            output::check_writable("--plot", out)?;
        }
        let threads = count("--threads", args.threads, 256)?;
        Ok(Self {
            target,
            models,
            mode,
            warmup: duration("--warmup", &args.warmup, true)?,
            duration: duration("--duration", &args.duration, false)?,
            tries: count("--tries", args.tries, 100)?,
            timeout,
            connections: count("--connections", args.connections, 100_000)?.max(threads),
            threads,
            seed: args.seed,
            inputs: InputPlan::of(args)?,
        })
    }

    /// All models' rates together.
    pub(super) fn rate(&self) -> f64 {
        self.models.iter().map(|model| model.rate).sum()
    }
}

impl InputPlan {
    fn of(args: &LoadArgs) -> Result<Self, InputError> {
        let zeros = match args.data.as_str() {
            "random" => false,
            "zeros" => true,
            other => {
                return Err(refuse(
                    "--data",
                    format!("'{}': use random or zeros", in_one_line(other)),
                ));
            }
        };
        if args.batch < 1 {
            return Err(refuse("--batch", format!("{} is not a whole number above 0", args.batch)));
        }
        let shape = |text: &String| {
            let parsed = text.rsplit_once(':').and_then(|(name, axes)| {
                let axes: Result<Vec<i64>, _> = axes.split(',').map(str::parse).collect();
                axes.ok()
                    .filter(|axes| axes.iter().all(|&axis| axis >= 0))
                    .map(|axes| (name.to_owned(), axes))
            });
            parsed.ok_or_else(|| {
                refuse(
                    "--shape",
                    format!("'{}' is not of the form INPUT:1,3,224,224", in_one_line(text)),
                )
            })
        };
        let file = |text: &String| match text.split_once(':') {
            Some((name, file)) => Ok((name.to_owned(), PathBuf::from(file))),
            None => Err(refuse(
                "--input",
                format!("'{}' is not of the form INPUT:FILE", in_one_line(text)),
            )),
        };
        Ok(Self {
            batch: args.batch,
            zeros,
            send_timeout: args.send_timeout,
            shared_memory: args.shared_memory,
            shapes: args.shape.iter().map(shape).collect::<Result<_, _>>()?,
            files: args.input.iter().map(file).collect::<Result<_, _>>()?,
        })
    }
}

/// A model as it was written.
struct Asked {
    name: String,
    rate: Option<f64>,
    slo: Option<Duration>,
}

impl Asked {
    fn parse(text: &str) -> Result<Self, InputError> {
        let number = |part: &str| {
            part.parse::<f64>().map_err(|_| {
                refuse(
                    "MODEL",
                    format!("'{}' is not of the form NAME=RATE@SLO_MS", in_one_line(text)),
                )
            })
        };
        let (rest, slo) = match text.rsplit_once('@') {
            Some((rest, slo)) => (rest, Some(milliseconds("MODEL", number(slo)?)?)),
            None => (text, None),
        };
        let (name, rate) = match rest.split_once('=') {
            Some((name, rate)) => (name, Some(checked_rate("MODEL", number(rate)?)?)),
            None => (rest, None),
        };
        if name.is_empty() || name.contains(char::is_control) {
            return Err(refuse("MODEL", format!("'{}' has no name", in_one_line(text))));
        }
        Ok(Self { name: name.to_owned(), rate, slo })
    }
}

/// Each model's rate: its own, or an equal part of what is left of `--rate`.
fn rates(
    asked: &[Asked],
    rate: Option<f64>,
    recorded: Option<f64>,
    mode: &Mode,
) -> Result<Vec<f64>, InputError> {
    let own: f64 = asked.iter().filter_map(|model| model.rate).sum();
    let without = asked.iter().filter(|model| model.rate.is_none()).count();
    let part = match (rate, recorded, mode) {
        _ if without == 0 => 0.0,
        (Some(rate), ..) if rate > own => (rate - own) / without as f64,
        (Some(rate), ..) => {
            return Err(refuse(
                "--rate",
                format!("{rate} leaves nothing for models without a rate of their own"),
            ));
        }
        (None, Some(recorded), Mode::Open { .. }) => recorded,
        (None, _, Mode::Closed { .. }) => 1.0,
        (None, _, Mode::Goodput { .. }) => {
            if own > 0.0 {
                own / asked.len() as f64
            } else {
                FIRST_RATE / without as f64
            }
        }
        (None, ..) => {
            return Err(refuse("--rate", "missing: give --rate R, --concurrency N or --goodput"));
        }
    };
    Ok(asked.iter().map(|model| model.rate.unwrap_or(part)).collect())
}

/// The words of `fermata sim`; the rate of a recording comes with it.
fn spread(text: &str) -> Result<(Spread, Option<f64>), InputError> {
    if let Some(file) = text.strip_prefix("trace:") {
        let recording = Recording::read(Path::new(file))
            .map_err(|error| refuse("--arrivals", error.to_string()))?;
        return Ok((Spread::Recorded(recording.gaps()), Some(recording.rate())));
    }
    let process = text
        .parse::<Process>()
        .map_err(|error| refuse("--arrivals", in_one_line(&error.to_string())))?;
    Ok((Spread::Process(process), None))
}

fn refuse(name: &'static str, reason: impl Into<String>) -> InputError {
    InputError::Argument { name, reason: reason.into() }
}

fn count(name: &'static str, value: usize, most: usize) -> Result<usize, InputError> {
    match value {
        value if (1..=most).contains(&value) => Ok(value),
        _ => Err(refuse(name, format!("{value} is not a whole number from 1 to {most}"))),
    }
}

fn checked_rate(name: &'static str, rate: f64) -> Result<f64, InputError> {
    if rate > 0.0 && rate <= RATE_MAX {
        return Ok(rate);
    }
    Err(refuse(
        name,
        format!("{rate:?} is not a number of requests a second above 0, at most {RATE_MAX}"),
    ))
}

fn milliseconds(name: &'static str, ms: f64) -> Result<Duration, InputError> {
    if ms > 0.0 && ms <= 1e3 * SECONDS_MAX {
        return Ok(Duration::from_secs_f64(ms / 1e3));
    }
    Err(refuse(name, format!("{ms:?} is not a number of milliseconds above 0, at most one day")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_rates_and_objectives_of_their_own() {
        let model = Asked::parse("a=500@25").unwrap();
        assert_eq!(
            (model.name.as_str(), model.rate, model.slo),
            ("a", Some(500.0), Some(Duration::from_millis(25)))
        );
        assert_eq!(Asked::parse("a@5").unwrap().rate, None);
        for text in ["", "=5", "a=", "a=x", "a=0", "a@-1", "a=1e9"] {
            assert!(Asked::parse(text).is_err(), "{text}");
        }
        let asked = ["a=300", "b", "c"].map(|text| Asked::parse(text).unwrap());
        let open = Mode::Open { spread: Spread::Process(Process::Poisson) };
        assert_eq!(rates(&asked, Some(500.0), None, &open).unwrap(), [300.0, 100.0, 100.0]);
        assert!(rates(&asked, Some(300.0), None, &open).is_err());
        assert!(rates(&asked, None, None, &open).is_err());
    }
}
