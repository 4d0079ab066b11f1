//! `fermata profile`: how long the batches of a model take on this machine.

mod args;
mod picture;
mod place;
mod report;
mod subject;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use fermata_core::Span;
use fermata_engine::{Engine, EngineError, Session, Signature, Source};
use fermata_files::{InputError, objective, output};
use fermata_server::profiler::{Cache, CacheKey, Measured, Options, Stop, measure};
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use args::ProfileArgs;
use place::Place;
use report::Report;
use subject::{Subject, What};

/// Runs the command. In a repository, a model that cannot be measured does not keep the others from
/// it.
pub(crate) fn run(args: &ProfileArgs) -> anyhow::Result<()> {
    let shapes = args::check_shapes(&args.shape)?;
    let limit = args.slo_ms.map(objective).transpose()?;
    if let Some(out) = &args.plot {
        output::check_writable("--plot", out)?;
    }
    let places = Place::all(args)?;
    let (mut reports, mut failed, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
    for subject in subject::find(args, limit)? {
        match subject {
            Ok(subject) => subjects.push(subject),
            Err(error) => failed.push(error),
        }
    }
    for place in places {
        let bench = Bench::new(args, place.engine(), shapes.clone());
        for subject in &subjects {
            match bench.profile(subject, limit) {
                Ok(report) => reports.push(report),
                Err(error) => failed.push(error),
            }
        }
    }
    if reports.is_empty() && failed.len() == 1 {
        return Err(failed.remove(0));
    }
    for error in &failed {
        eprintln!("error: {error:#}");
    }
    if let (Some(out), false) = (&args.plot, reports.is_empty()) {
        output::write_file(out, &picture::draw(&reports))?;
    }
    let text = if args.json { report::json(&reports)? } else { report::text(&reports) };
    output::print(&text)?;
    match failed.len() {
        0 => Ok(()),
        count => {
            let of = count + reports.len();
            let reason = format!("{count} of {of} models could not be measured");
            Err(InputError::Argument { name: "PATH", reason }.into())
        }
    }
}

/// The engine, and how to measure.
struct Bench {
    engine: Result<Arc<dyn Engine>, EngineError>,
    threads: usize,
    shapes: BTreeMap<String, Vec<i64>>,
    force: bool,
    bar: ProgressBar,
}

impl Bench {
    fn new(
        args: &ProfileArgs,
        engine: Result<Arc<dyn Engine>, EngineError>,
        shapes: BTreeMap<String, Vec<i64>>,
    ) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        // Drawn on a terminal only.
        let bar = ProgressBar::no_length();
        let style = ProgressStyle::with_template("  {msg} {wide_bar} batch {pos} of {len}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self {
            engine,
            threads: args.threads.map_or(cores, |threads| threads as usize),
            shapes,
            force: args.force,
            bar,
        }
    }

    fn profile(&self, subject: &Subject, limit: Option<Span>) -> anyhow::Result<Report> {
        match &subject.what {
            What::Emulated(resolved, profile) => {
                let slo = limit.unwrap_or(resolved.slo);
                Ok(Report::emulated(&subject.name, slo, profile))
            }
            What::File { file, entry } => {
                let engine: &dyn Engine = match &self.engine {
                    Ok(engine) => engine.as_ref(),
                    Err(error) => anyhow::bail!("{error}"),
                };
                let source = Source { file: file.clone(), threads: self.threads, memory: None };
                let model = engine.load(&source).map_err(refuse)?;
                let (signature, slo, mut shapes) = match entry {
                    Some(entry) => {
                        let resolved = subject::resolve_file(entry, model.signature())?;
                        (resolved.signature, resolved.slo, resolved.shapes)
                    }
                    None => (model.signature().clone(), Span::MAX, BTreeMap::new()),
                };
                shapes.extend(self.shapes.clone());
                args::check_fit(&shapes, &signature)?;
                let slo = limit.unwrap_or(slo);
                let options = Options { shapes, ..Options::default() };
                let cache = Cache::of(file);
                let key = CacheKey::of(engine, &source, &signature, &options).map_err(refuse)?;
                let kept = match self.force {
                    true => None,
                    false => cache.load(&key, slo, signature.max_batch),
                };
                let (measured, kept_in) = match kept {
                    Some(measured) => (measured, None),
                    None => {
                        let mut session = model.session(&signature).map_err(refuse)?;
                        let measured = self.measure(
                            &subject.name,
                            session.as_mut(),
                            &signature,
                            slo,
                            &options,
                        )?;
                        let written = cache.store(&key, &measured);
                        (measured, Some(written))
                    }
                };
                let mut report =
                    Report::new(&subject.name, engine, self.threads, slo, &measured, kept_in);
                report.differs_in_length = signature.length.is_some();
                Ok(report)
            }
        }
    }

    fn measure(
        &self,
        name: &str,
        session: &mut dyn Session,
        signature: &Signature,
        slo: Span,
        options: &Options,
    ) -> anyhow::Result<Measured> {
        self.bar.set_message(name.to_owned());
        let measured = measure(session, signature, slo, options, &mut |step| {
            self.bar.set_length(step.max as u64);
            self.bar.set_position(step.size as u64);
        });
        self.bar.finish_and_clear();
        let measured = measured.map_err(|error| {
            let any = signature
                .inputs
                .iter()
                .find(|spec| spec.shape.contains(&-1) && !options.shapes.contains_key(&spec.name));
            let hint = match any {
                Some(spec) => {
                    format!(" (input '{0}' may have any shape: try --shape {0}:...)", spec.name)
                }
                None => String::new(),
            };
            InputError::Argument { name: "PATH", reason: format!("model '{name}': {error}{hint}") }
        })?;
        if let Stop::Failed(reason) = &measured.stop {
            let larger = measured.max_batch() + 1;
            eprintln!("note: model '{name}': batches of {larger} and more fail: {reason}");
        }
        Ok(measured)
    }
}

/// A model that an engine does not take.
fn refuse(error: EngineError) -> InputError {
    InputError::Argument { name: "PATH", reason: error.to_string() }
}
