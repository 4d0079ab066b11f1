//! Results as they are found: a CSV that is appended to, so that hours of work survive an
//! interruption.
//!
//! The first line names the setting of the runs, the second one the columns. Then there is one line
//! for each key, which is its first cell. Of several lines with one key the last one counts.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use anyhow::Context;
use fermata_files::{InputError, output};

/// What a line says of its key.
pub(super) trait Row: Sized {
    /// The first cell, without a comma. Rows are written in the order of their keys.
    type Key: Ord + FromStr + Display;
    /// What a whole line is, for messages.
    const WHAT: &'static str;

    /// Reads the cells after the key; `None`, if they are broken.
    fn read(cells: &str) -> Option<Self>;

    /// The cells after the key.
    fn cells(&self) -> String;
}

/// All that is known.
pub(super) type Rows<R> = BTreeMap<<R as Row>::Key, R>;

/// The file.
pub(super) struct Store {
    file: PathBuf,
    /// Which runs the results are from; another's are not mixed with them.
    setting: String,
    /// The names of the columns.
    head: String,
}

impl Store {
    pub(super) fn new(file: PathBuf, setting: String, head: String) -> Self {
        Self { file, setting, head }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// What is stored; nothing, if there is no file yet. A line that `check` gives a reason against
    /// is refused.
    pub(super) fn read<R: Row>(
        &self,
        check: impl Fn(&R::Key, &R) -> Result<(), String>,
    ) -> Result<Rows<R>, InputError> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Rows::<R>::new());
            }
            Err(source) => return Err(InputError::Read { file: self.file.clone(), source }),
        };
        self.parse(&text, check)
    }

    fn parse<R: Row>(
        &self,
        text: &str,
        check: impl Fn(&R::Key, &R) -> Result<(), String>,
    ) -> Result<Rows<R>, InputError> {
        let refuse = |line: usize, reason: String| InputError::Syntax {
            file: self.file.clone(),
            line,
            reason: format!("{reason}: move the file away to measure anew"),
        };
        let mut lines = (1..).zip(text.lines());
        for (line, expected) in [(1, &self.setting), (2, &self.head)] {
            let found = lines.next().map_or("", |(_, line)| line);
            if found != expected {
                return Err(refuse(line, format!("is '{found}', not '{expected}'")));
            }
        }
        let mut rows = Rows::<R>::new();
        let whole = text.ends_with('\n');
        let last = text.lines().count();
        for (number, line) in lines {
            // The last line of a run that was killed while writing.
            if number == last && !whole {
                continue;
            }
            let Some((key, row)) = read_line::<R>(line) else {
                let reason = format!("'{line}' is not {}", R::WHAT);
                return Err(InputError::Syntax { file: self.file.clone(), line: number, reason });
            };
            check(&key, &row).map_err(|reason| refuse(number, reason))?;
            rows.insert(key, row);
        }
        Ok(rows)
    }

    /// Replaces the file by these rows.
    pub(super) fn write<R: Row>(&self, rows: &Rows<R>) -> anyhow::Result<()> {
        let mut text = format!("{}\n{}\n", self.setting, self.head);
        rows.iter().for_each(|(key, row)| text.push_str(&line(key, row)));
        output::write_file(&self.file, &text)
    }

    /// Replaces the file by these rows, and opens it for more.
    pub(super) fn open<R: Row>(&self, rows: &Rows<R>) -> anyhow::Result<Appender> {
        self.write(rows)?;
        let file = OpenOptions::new().append(true).open(&self.file);
        let file = file.with_context(|| cannot_write(&self.file))?;
        Ok(Appender { file: Mutex::new(file), name: self.file.clone() })
    }
}

/// Adds lines from several threads, each with one write.
pub(super) struct Appender {
    file: Mutex<File>,
    name: PathBuf,
}

impl Appender {
    pub(super) fn add<R: Row>(&self, key: &R::Key, row: &R) -> anyhow::Result<()> {
        let mut file = self.file.lock().expect("no thread panics while writing");
        file.write_all(line(key, row).as_bytes()).with_context(|| cannot_write(&self.name))
    }
}

fn cannot_write(file: &Path) -> String {
    format!("{}: cannot be written", file.display())
}

fn read_line<R: Row>(line: &str) -> Option<(R::Key, R)> {
    let (key, cells) = line.split_once(',')?;
    Some((key.parse().ok()?, R::read(cells)?))
}

fn line<R: Row>(key: &R::Key, row: &R) -> String {
    format!("{key},{}\n", row.cells())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goodputs of two policies, as figure 7 has them.
    type Pair = [Option<f64>; 2];

    /// A row with numbers as keys.
    struct Text(String);

    impl Row for Text {
        type Key = u64;
        const WHAT: &'static str = "a number and a text";

        fn read(cells: &str) -> Option<Self> {
            Some(Self(cells.to_owned()))
        }

        fn cells(&self) -> String {
            self.0.clone()
        }
    }

    fn store() -> Store {
        let setting = "# 1000 requests a run, seed 1".to_owned();
        Store::new(PathBuf::from("figure7.csv"), setting, "workload,eager,fermata".to_owned())
    }

    fn parse(text: &str) -> Result<Rows<Pair>, InputError> {
        store().parse(text, |_, _| Ok(()))
    }

    #[test]
    fn rows_are_read_the_last_line_wins_and_half_a_line_is_forgotten() {
        let text =
            "# 1000 requests a run, seed 1\nworkload,eager,fermata\na,1,2\nb,3,\na,1,5.5\nc,4";
        let rows = parse(text).unwrap();
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
            (
                "# 1000 requests a run, seed 1\nworkload,eager,fermata\na\n",
                "line 3: 'a' is not a workload",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_line_that_does_not_pass_the_check_is_refused_with_its_number() {
        let text = "# 1000 requests a run, seed 1\nworkload,eager,fermata\n7,a\n8,b\n";
        let check = |key: &u64, row: &Text| match *key {
            8 => Err(format!("{} is another", row.0)),
            _ => Ok(()),
        };
        let error = store().parse(text, check).err().unwrap().to_string();
        let expected = "figure7.csv: line 4: b is another: move the file away to measure anew";
        assert_eq!(error, expected);
    }

    #[test]
    fn rows_are_written_in_the_order_of_their_keys() {
        let folder = std::env::temp_dir().join(format!("fermata-store-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let store = Store::new(folder.join("rows.csv"), "# a".to_owned(), "key,text".to_owned());
        let rows = Rows::<Text>::from([(10, Text("x,y".to_owned())), (9, Text("z".to_owned()))]);
        let appender = store.open(&rows).unwrap();
        appender.add(&8, &Text("w".to_owned())).unwrap();
        let text = fs::read_to_string(store.file()).unwrap();
        assert_eq!(text, "# a\nkey,text\n9,z\n10,x,y\n8,w\n");
        let rows: Rows<Text> = store.read(|_, _| Ok(())).unwrap();
        store.write(&rows).unwrap();
        let text = fs::read_to_string(store.file()).unwrap();
        assert_eq!(text, "# a\nkey,text\n8,w\n9,z\n10,x,y\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
