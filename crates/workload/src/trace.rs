//! Recorded traffic: the moments of single requests, and counts by the minute.
//!
//! The two readers are the only IO of this crate. A broken line is an error that names it: nothing
//! is skipped in silence.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fermata_core::{Span, Time};

use crate::gaps::GapTable;
use crate::rate::Rate;

/// The moments at which requests came, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// One for each request.
    pub times: Arc<[Time]>,
}

/// How often functions were called in each minute.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// In the order of the file.
    pub functions: Vec<FunctionCounts>,
}

/// How often one function was called in each minute.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCounts {
    /// Its name: a hash, in the public traces.
    pub name: String,
    /// The calls of each minute.
    pub by_minute: Vec<u32>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is not there, or is not text.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is broken.
    #[error("{}: line {line}: {reason}", file.display())]
    Line {
        /// Which file.
        file: PathBuf,
        /// Which line, the first being 1.
        line: usize,
        /// What is wrong with it.
        reason: LineError,
    },
    /// It is too short to have a rate.
    #[error("{}: needs at least two arrivals at different times", file.display())]
    Short {
        /// Which file.
        file: PathBuf,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Not a moment.
    #[error("'{0}' is neither a time in seconds nor a date and time")]
    Time(String),
    /// Too far from the beginning to be seconds of a run.
    #[error("{0} s is more than ten years after the start: times must be relative to it")]
    Far(String),
    /// Before the line above.
    #[error("'{0}' is earlier than the line before it")]
    Backwards(String),
    /// Not a number of calls.
    #[error("'{text}' in column {column} is not a number of calls")]
    Count {
        /// What is there.
        text: String,
        /// In which column, the first being 1.
        column: usize,
    },
    /// Too few or too many columns.
    #[error("has {found} columns, not {expected} as the header")]
    Columns {
        /// How many there are.
        found: usize,
        /// How many the header has.
        expected: usize,
    },
    /// The header is that of another format.
    #[error(
        "the header must begin with HashFunction,HashApp,HashOwner and have minutes after them"
    )]
    Header,
}

const SECONDS_MAX: f64 = 10.0 * 365.0 * 86_400.0;

impl Recording {
    /// Reads one arrival a line: seconds since the start, or a date and time such as `2023-11-16
    /// 18:15:46.68`, which becomes the time since the first one. Further columns, lines that begin
    /// with `#` and a header are passed over.
    pub fn read(file: &Path) -> Result<Self, TraceError> {
        let text = read_text(file)?;
        let mut reader = MomentReader::default();
        let mut times = Vec::new();
        for (line, text) in lines(&text) {
            let moment = reader.read(text);
            times.extend(moment.map_err(|reason| broken(file, line, reason))?);
        }
        if times.last() <= times.first() || times.last() == Some(&Time::START) {
            return Err(TraceError::Short { file: file.to_owned() });
        }
        Ok(Self { times: times.into() })
    }

    /// Requests per second, from the start to the last of them.
    pub fn rate(&self) -> f64 {
        self.times.len() as f64 / self.times.last().map_or(f64::INFINITY, |last| last.as_secs())
    }

    /// The gaps between arrivals with their mean as the unit, so that they can be replayed at any
    /// rate; a stream of them begins again when the recording ends.
    pub fn gaps(&self) -> GapTable {
        let mut last = Time::START;
        let rate = self.rate();
        let gap = |&time: &Time| {
            let gap = time - last;
            last = time;
            (gap.as_secs() * rate) as f32
        };
        self.times.iter().map(gap).collect()
    }
}

impl Counts {
    /// Reads a table of calls a minute: `HashFunction,HashApp,HashOwner,minute_1,minute_2,...`, as
    /// the samples of the Azure Functions traces of 2019 have it.
    pub fn read(file: &Path) -> Result<Self, TraceError> {
        let text = read_text(file)?;
        let mut lines = lines(&text);
        let columns = match lines.next() {
            Some((_, header)) if header.starts_with("HashFunction,HashApp,HashOwner,") => {
                header.split(',').count()
            }
            other => {
                let line = other.map_or(1, |(line, _)| line);
                return Err(broken(file, line, LineError::Header));
            }
        };
        let functions = lines
            .map(|(line, text)| {
                FunctionCounts::parse(text, columns).map_err(|reason| broken(file, line, reason))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { functions })
    }
}

impl FunctionCounts {
    fn parse(text: &str, columns: usize) -> Result<Self, LineError> {
        let found = text.split(',').count();
        if found != columns {
            return Err(LineError::Columns { found, expected: columns });
        }
        let count = |(text, column): (&str, usize)| {
            text.parse().map_err(|_| LineError::Count { text: text.to_owned(), column })
        };
        let mut fields = text.split(',');
        let name = fields.next().unwrap_or_default().to_owned();
        let by_minute = fields.skip(2).zip(4..).map(count).collect::<Result<_, _>>()?;
        Ok(Self { name, by_minute })
    }

    /// The rate over time, where a recorded minute takes `minute` and a recorded call a second
    /// becomes `factor` requests a second. It ends with the recording.
    pub fn rate(&self, minute: Span, factor: f64) -> Rate {
        let mut steps: Vec<(Time, f64)> = Vec::new();
        for (&count, at) in self.by_minute.iter().chain([&0]).zip(0..) {
            let rate = f64::from(count) / 60.0 * factor;
            if steps.last().is_none_or(|&(_, last)| last != rate) {
                steps.push((Time::START + minute * at, rate));
            }
        }
        Rate::Steps(steps.into())
    }

    /// All calls.
    pub fn total(&self) -> u64 {
        self.by_minute.iter().map(|&count| u64::from(count)).sum()
    }
}

/// Reads moments line by line, and remembers what the next one depends on.
#[derive(Default)]
struct MomentReader {
    /// The first date, in nanoseconds since 1970, where the lines have dates.
    origin: Option<u64>,
    last: Option<Time>,
    header_passed: bool,
}

impl MomentReader {
    fn read(&mut self, line: &str) -> Result<Option<Time>, LineError> {
        let text = line.split(',').next().unwrap_or_default().trim();
        if !self.header_passed && text.starts_with(|first: char| first.is_alphabetic()) {
            self.header_passed = true;
            return Ok(None);
        }
        self.header_passed = true;
        let time = self.moment(text)?;
        if self.last.is_some_and(|last| time < last) {
            return Err(LineError::Backwards(text.to_owned()));
        }
        self.last = Some(time);
        Ok(Some(time))
    }

    fn moment(&mut self, text: &str) -> Result<Time, LineError> {
        let unreadable = || LineError::Time(text.to_owned());
        // A file has seconds or dates, never both: the first line decides.
        if self.origin.is_none()
            && let Ok(seconds) = text.parse::<f64>()
        {
            return match seconds {
                0.0..SECONDS_MAX => Ok(Time::START + Span::from_secs(seconds)),
                SECONDS_MAX.. => Err(LineError::Far(text.to_owned())),
                _ => Err(unreadable()),
            };
        }
        if self.origin.is_none() && self.last.is_some() {
            return Err(unreadable());
        }
        let date = parse_date(text).ok_or_else(unreadable)?;
        let origin = *self.origin.get_or_insert(date);
        let since =
            date.checked_sub(origin).ok_or_else(|| LineError::Backwards(text.to_owned()))?;
        Ok(Time(since))
    }
}

/// `2023-11-16 18:15:46.6805900` in nanoseconds since 1970.
fn parse_date(text: &str) -> Option<u64> {
    let (date, clock) = text.trim_end_matches('Z').split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let plausible = (1970..2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (hour < 24 && minute < 60 && second < 61);
    if !plausible || fraction.len() > 9 {
        return None;
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().ok()?;
    let days = days_since_1970(year, month, day);
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + nanoseconds)
}

/// Years begin in March here, so that the leap day is the last of its year.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_month = (153 * month + 2) / 5;
    // 719,468 days lie between 1 March of the year 0 and 1 January 1970.
    365 * year + year / 4 - year / 100 + year / 400 + before_month + day - 1 - 719_468
}

fn read_text(file: &Path) -> Result<String, TraceError> {
    fs::read_to_string(file).map_err(|source| TraceError::Read { file: file.to_owned(), source })
}

/// The lines that say something, numbered from one.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.trim_start_matches('\u{feff}');
    let says_something = |line: &str| !line.is_empty() && !line.starts_with('#');
    (1..).zip(text.lines().map(str::trim)).filter(move |&(_, line)| says_something(line))
}

fn broken(file: &Path, line: usize, reason: LineError) -> TraceError {
    TraceError::Line { file: file.to_owned(), line, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gaps, Stream};

    #[test]
    fn lists_of_seconds_are_read_with_comments_and_a_header() {
        let recording =
            recording("# a comment\narrival_s\n0.5\n\n1.25,ignored\n1.25\n4\n").unwrap();
        assert_eq!(*recording.times, [500.0, 1250.0, 1250.0, 4000.0].map(Time::from_ms));
        assert_eq!(recording.rate(), 1.0);
    }

    #[test]
    fn dates_become_times_since_the_first() {
        let text =
            "TIMESTAMP,ContextTokens\n2024-02-28 23:59:59.5,1\n2024-03-01T00:00:00.7500001Z,2\n";
        let times = recording(text).unwrap().times;
        assert_eq!(*times, [Time::START, Time(86_401_250_000_100)]);
    }

    #[test]
    fn broken_lines_are_named() {
        for (text, expected) in [
            ("0.1\nsoon\n", "trace.csv: line 2: 'soon' is neither a time in seconds nor a date"),
            ("# a\n1\n0.5\n", "trace.csv: line 3: '0.5' is earlier than the line before it"),
            ("0\n-1\n", "line 2: '-1' is neither"),
            ("0\nNaN\n", "line 2: 'NaN' is neither"),
            ("0\n2023-11-16 18:15:46\n", "line 2: '2023-11-16 18:15:46' is neither"),
            ("2023-11-16 18:15:46\n5\n", "line 2: '5' is neither"),
            ("2023-11-16 18:15:46\n2023-11-16 18:15:45\n", "line 2: '2023-11-16 18:15:45' is earl"),
            ("2023-13-16 18:15:46\n", "line 1: '2023-13-16 18:15:46' is neither"),
            ("1700000000\n", "line 1: 1700000000 s is more than ten years"),
            ("arrival_s\n", "trace.csv: needs at least two arrivals"),
            ("3\n3\n", "trace.csv: needs at least two arrivals"),
        ] {
            let error = recording(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let missing = Recording::read(Path::new("no/such.csv")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.csv: cannot be read"), "{missing}");
    }

    #[test]
    fn gaps_replay_a_recording_at_another_rate_again_and_again() {
        let recording = recording("1\n1.5\n4\n").unwrap();
        let mut stream = Stream::new(Gaps::from_table(recording.gaps()), &Rate::Constant(7.5));
        let times: Vec<f64> = (0..4).map(|_| stream.next_arrival().as_ms()).collect();
        for (found, expected) in times.iter().zip([100.0, 150.0, 400.0, 500.0]) {
            assert!((found - expected).abs() < 0.001, "{times:?}");
        }
    }

    #[test]
    fn counts_become_steps_scaled_in_time_and_rate() {
        let counts =
            counts("HashFunction,HashApp,HashOwner,minute_1,minute_2,minute_3\nf,a,o,60,60,6\n");
        let function = &counts.unwrap().functions[0];
        assert_eq!(function.total(), 126);
        let rate = function.rate(Span::from_secs(2.0), 10.0);
        let steps = [(0.0, 10.0), (4.0, 1.0), (6.0, 0.0)];
        let steps = steps.map(|(secs, rate)| (Time::START + Span::from_secs(secs), rate));
        assert_eq!(rate, Rate::Steps(steps.into()));
    }

    #[test]
    fn broken_counts_are_named() {
        let header = "HashFunction,HashApp,HashOwner,minute_1,minute_2\n";
        for (rows, expected) in [
            ("f,a,o,1,x\n", "trace.csv: line 2: 'x' in column 5 is not a number of calls"),
            ("f,a,o,1,2\nf,a,o,-1,2\n", "line 3: '-1' in column 4"),
            ("f,a,o,1\n", "line 2: has 4 columns, not 5"),
        ] {
            let error = counts(&format!("{header}{rows}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{rows:?}: {error}");
        }
        assert!(counts("0.5\n").unwrap_err().to_string().contains("line 1: the header"));
    }

    #[test]
    fn the_traces_that_come_with_the_project_are_read() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces");
        let counts = Counts::read(&traces.join("azure_functions_2019_1000x1440.csv")).unwrap();
        assert_eq!(counts.functions.len(), 1000);
        assert!(counts.functions.iter().all(|function| function.by_minute.len() == 1440));
        let recording = Recording::read(&traces.join("azure_llm_2023_conv_2000.csv")).unwrap();
        assert_eq!(recording.times.len(), 2000);
        assert_eq!(recording.times[1], Time::START + Span(4_314_579_000));
    }

    fn recording(text: &str) -> Result<Recording, TraceError> {
        with_file(text, Recording::read)
    }

    fn counts(text: &str) -> Result<Counts, TraceError> {
        with_file(text, Counts::read)
    }

    /// Tests run side by side: each has a folder of its own.
    fn with_file<T>(text: &str, read: impl Fn(&Path) -> T) -> T {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("fermata-trace-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("trace.csv");
        fs::write(&file, text).unwrap();
        let result = read(&file);
        fs::remove_dir_all(&folder).unwrap();
        result
    }
}
