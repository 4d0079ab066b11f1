//! What the paper printed, and the loads of its tables.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fermata_core::Span;
use fermata_files::InputError;
use fermata_sim::{Alone, Peak};

/// A cell of a table: a load, an objective, and the finish rates that the paper found.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: String,
    /// The objective, in 99th percentiles of the alone time.
    pub(super) times_p99: f64,
    /// Of Clipper, Nexus, Clockwork and Orloj.
    pub(super) printed: [f64; 4],
}

/// The rows of one table of the paper.
pub(super) fn rows(data: &Path, table: u32) -> Result<Vec<Row>, InputError> {
    let file = data.join("orloj_finish_rates.csv");
    let lines = lines(&file)?;
    let rows = lines.iter().map(|(number, fields)| {
        let wrong = || broken(&file, *number, "a table, a case, and five numbers");
        let [of, case, numbers @ ..] = &fields[..] else { return Err(wrong()) };
        let numbers: Result<Vec<f64>, _> = numbers.iter().map(|text| text.parse()).collect();
        let (Ok(of), Ok(numbers)) = (of.parse::<u32>(), numbers) else { return Err(wrong()) };
        let [times_p99, clipper, nexus, clockwork, orloj] = numbers[..] else {
            return Err(wrong());
        };
        let printed = [clipper, nexus, clockwork, orloj];
        Ok((of, Row { case: case.clone(), times_p99, printed }))
    });
    let rows: Vec<(u32, Row)> = rows.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().filter(|(of, _)| *of == table).map(|(_, row)| row).collect())
}

/// How long the requests of a case take alone.
pub(super) fn alone(data: &Path, case: &str) -> Result<Alone, InputError> {
    let count = |name: &str| NUMBERS.iter().position(|word| *word == name);
    if let Some(modes) = case.strip_suffix("-modal").and_then(count) {
        return Ok(Alone::modes(modes + 1, 10.0));
    }
    if let Some(deviations) = case.strip_prefix("std-") {
        let (short, long) = deviations.split_once('/').unwrap_or((deviations, deviations));
        if let (Ok(short), Ok(long)) = (short.parse::<f64>(), long.parse::<f64>()) {
            let peak = |mean, deviation| Peak { weight: 1.0, mean, deviation: 10.0 * deviation };
            return Ok(Alone::Peaks(vec![peak(50.0, short), peak(150.0, long)]));
        }
    }
    if case.ends_with("-imagenet") && !case.starts_with("skipnet") {
        return Ok(Alone::Constant(Span::from_ms(20.0)));
    }
    let file = data.join("orloj_workloads.csv");
    for (number, fields) in lines(&file)? {
        let wrong =
            || broken(&file, number, "a task, a model, a dataset, a mean and a 99th percentile");
        let [_, model, dataset, mean, p99] = &fields[..] else { return Err(wrong()) };
        if case == format!("{model}-{dataset}") {
            let (Ok(mean), Ok(p99)) = (mean.parse(), p99.parse()) else { return Err(wrong()) };
            return Ok(Alone::log_normal(mean, p99));
        }
    }
    let reason = format!("{}: no workload '{case}'", file.display());
    Err(InputError::Argument { name: "--data", reason })
}

/// In words, as the paper counts.
const NUMBERS: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

/// Requests as long as the inputs of a trace: a tenth of a millisecond for each token.
pub(super) fn lengths(file: &Path) -> Result<Alone, InputError> {
    let text = read("--lengths", file)?;
    let wrong = |reason: String| InputError::Argument { name: "--lengths", reason };
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split(',').position(|name| name.trim() == "ContextTokens");
    let column =
        column.ok_or_else(|| wrong(format!("{}: has no column ContextTokens", file.display())))?;
    let mut lengths = Vec::new();
    for (number, line) in (2..).zip(lines) {
        let field = line.split(',').nth(column).map(str::trim);
        match field.and_then(|field| field.parse::<u32>().ok()).filter(|&length| length > 0) {
            Some(length) => lengths.push(length),
            None => {
                return Err(wrong(format!("{}: line {number}: expected a length", file.display())));
            }
        }
    }
    if lengths.is_empty() {
        return Err(wrong(format!("{}: has no requests", file.display())));
    }
    lengths.sort_unstable();
    Ok(Alone::Lengths { lengths: Arc::from(lengths), each: Span::from_ms(0.1) })
}

/// The fields of every line behind the first, with the line's number.
fn lines(file: &Path) -> Result<Vec<(usize, Vec<String>)>, InputError> {
    let text = read("--data", file)?;
    let fields = |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect();
    Ok((2..).zip(text.lines().skip(1).map(fields)).collect())
}

fn read(name: &'static str, file: &Path) -> Result<String, InputError> {
    fs::read_to_string(file).map_err(|error| InputError::Argument {
        name,
        reason: format!("{}: cannot be read: {error}", file.display()),
    })
}

fn broken(file: &Path, line: usize, expected: &str) -> InputError {
    let reason = format!("{}: line {line}: expected {expected}", file.display());
    InputError::Argument { name: "--data", reason }
}
