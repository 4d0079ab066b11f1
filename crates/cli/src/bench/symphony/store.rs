//! Figure 7's goodputs as they are found: a CSV that is appended to, so that hours of work survive an interruption.
//!
//! One line for each workload: its name and a goodput for each policy, empty where it is to be measured again. Of
//! several lines for one workload the last one counts.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::input::InputError;
use crate::output;

/// What is known of every workload, by its name.
pub(super) type Rows = BTreeMap<String, Vec<Option<f64>>>;

/// The file.
pub(super) struct Store {
    file: PathBuf,
    /// Which runs the goodputs are from; another's are not mixed with them.
    setting: String,
    policies: Vec<&'static str>,
}

impl Store {
    pub(super) fn new(file: PathBuf, requests: u64, seed: u64, policies: &[&'static str]) -> Self {
        let setting = format!("# {requests} requests a run, seed {seed}");
        Self { file, setting, policies: policies.to_vec() }
    }

    /// What is stored; nothing, if there is no file yet.
    pub(super) fn read(&self) -> Result<Rows, InputError> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Rows::new()),
            Err(source) => return Err(InputError::Read { file: self.file.clone(), source }),
        };
        self.parse(&text)
    }

    fn parse(&self, text: &str) -> Result<Rows, InputError> {
        let refuse = |line: usize, reason: String| {
            Err(InputError::Syntax { file: self.file.clone(), line, reason })
        };
        let mut lines = (1..).zip(text.lines());
        for expected in [&self.setting, &self.head()] {
            let found = lines.next().map_or("", |(_, line)| line);
            if found != expected {
                let line = if *expected == self.setting { 1 } else { 2 };
                let reason =
                    format!("is '{found}', not '{expected}': move the file away to measure anew");
                return refuse(line, reason);
            }
        }
        let mut rows = Rows::new();
        let whole = text.ends_with('\n');
        let last = text.lines().count();
        for (number, line) in lines {
            // The last line of a run that was killed while writing.
            if number == last && !whole {
                continue;
            }
            let mut cells = line.split(',');
            let name = cells.next().unwrap_or_default();
            let numbers: Result<Vec<Option<f64>>, _> = cells
                .map(|cell| if cell.is_empty() { Ok(None) } else { cell.parse().map(Some) })
                .collect();
            match numbers {
                Ok(numbers) if numbers.len() == self.policies.len() => {
                    rows.insert(name.to_owned(), numbers);
                }
                _ => return refuse(number, format!("'{line}' is not a workload and its goodputs")),
            }
        }
        Ok(rows)
    }

    /// Replaces the file by these rows, and opens it for more.
    pub(super) fn open(&self, rows: &Rows) -> anyhow::Result<Appender> {
        let mut text = format!("{}\n{}\n", self.setting, self.head());
        rows.iter().for_each(|(name, row)| text.push_str(&line(name, row)));
        output::write_file(&self.file, &text)?;
        let file = OpenOptions::new().append(true).open(&self.file);
        Ok(Appender {
            file: file.with_context(|| cannot_write(&self.file))?,
            name: self.file.clone(),
        })
    }

    fn head(&self) -> String {
        format!("workload,{}", self.policies.join(","))
    }
}

/// Adds lines, each with one write.
pub(super) struct Appender {
    file: File,
    name: PathBuf,
}

impl Appender {
    pub(super) fn add(&mut self, name: &str, row: &[Option<f64>]) -> anyhow::Result<()> {
        self.file.write_all(line(name, row).as_bytes()).with_context(|| cannot_write(&self.name))
    }
}

fn cannot_write(file: &Path) -> String {
    format!("{}: cannot be written", file.display())
}

fn line(name: &str, row: &[Option<f64>]) -> String {
    let cell = |goodput: &Option<f64>| goodput.map_or(String::new(), |rate| format!("{rate:.2}"));
    let cells: Vec<String> = row.iter().map(cell).collect();
    format!("{name},{}\n", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(PathBuf::from("figure7.csv"), 1000, 1, &["eager", "fermata"])
    }

    #[test]
    fn rows_are_read_the_last_line_wins_and_half_a_line_is_forgotten() {
        let text =
            "# 1000 requests a run, seed 1\nworkload,eager,fermata\na,1,2\nb,3,\na,1,5.5\nc,4";
        let rows = store().parse(text).unwrap();
        assert_eq!(rows["a"], [Some(1.0), Some(5.5)]);
        assert_eq!(rows["b"], [Some(3.0), None]);
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn other_settings_and_broken_lines_are_refused() {
        for (text, expected) in [
            ("# 9 requests a run, seed 1\n", "line 1: is '# 9 requests a run, seed 1', not"),
            ("# 1000 requests a run, seed 1\nworkload,eager\n", "line 2: is 'workload,eager', not"),
            (
                "# 1000 requests a run, seed 1\nworkload,eager,fermata\na,1,x\n",
                "line 3: 'a,1,x' is not a workload",
            ),
            (
                "# 1000 requests a run, seed 1\nworkload,eager,fermata\na,1\nb,1,2\n",
                "line 3: 'a,1' is not a workload",
            ),
        ] {
            let error = store().parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
