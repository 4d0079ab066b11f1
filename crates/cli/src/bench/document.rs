//! Sections of Markdown with pictures, and the document that they make up.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{EXPERIMENTS, Experiment};
use crate::output;

/// What an experiment has to say, below its heading.
#[derive(Default)]
pub(super) struct Section {
    /// Markdown. Pictures are linked with `./`, relative to the section's own file.
    pub(super) body: String,
    /// Names without folder, with the text of each SVG.
    pub(super) pictures: Vec<(String, String)>,
}

impl Section {
    /// Adds a paragraph, followed by an empty line.
    pub(super) fn say(&mut self, text: impl AsRef<str>) {
        if !text.as_ref().is_empty() {
            let _ = writeln!(self.body, "{}\n", text.as_ref().trim_end());
        }
    }

    /// Adds a picture.
    pub(super) fn show(&mut self, name: &str, alternative: &str, svg: String) {
        self.say(format!("![{alternative}](./{name}.svg)"));
        self.pictures.push((format!("{name}.svg"), svg));
    }
}

/// A table whose first column is text and whose others are numbers, mostly.
#[derive(Default)]
pub(super) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(super) fn add<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        let row: Vec<String> = row.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.head.len(), "a row has a cell for every column");
        self.rows.push(row);
    }

    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = (0..self.head.len()).map(|at| if at == 0 { "---|" } else { "---:|" });
        let mut text = line(&self.head);
        let _ = writeln!(text, "|{}", rule.collect::<String>());
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}

/// The folder with the whole document and its sections.
pub(super) struct Document {
    out: PathBuf,
}

const NAME: &str = "symphony";
const INTRODUCTION: &str = "# Symphony's experiments, repeated

What `fermata bench symphony` found: the experiments of *Symphony: Optimized DNN Model Serving using Deferred Batch
Scheduling* (Chen and others) in Fermata's simulator, which runs the dispatcher that serves. Every number here was
measured by the command named below its section; `paper` is what the paper prints in its text and tables (what it only
draws is left out).

- *goodput*: the highest rate, in requests a second, at which every model has at least 99 % of its requests in time.
- *deferred*: Symphony's rule, with early drop. *fermata*: our default policy.
- *clockwork, shepherd, nexus, clipper, tfserving*: our implementations of those systems' schedulers, without their
  systems' overheads. *eager*: an ideal central scheduler that never lets an executor idle while something waits;
  with early drop, as `deferred`, or without (*eager-prefix*). *tfserving* is untuned: it waits for 10 ms and has batches of at most 32. *timeout:25%*: a batch waits for a quarter
  of the SLO.
- *bound*: staggered execution under perfectly regular arrivals (Symphony 3.3, equations 1 and 2); in pools of several
  models, every model at its largest staggered batch and the executors' time fully used. Random arrivals can be a little
  above it now and then: a hundredth may be lost, and a burst fills a large batch at once.

Policies see the same arrivals. Executors take exactly as long as their profile says.
";

impl Document {
    pub(super) fn new(out: &Path) -> Self {
        Self { out: out.to_owned() }
    }

    /// The whole document.
    pub(super) fn file(&self) -> PathBuf {
        self.out.join(format!("{NAME}.md"))
    }

    /// The folder of sections and pictures.
    pub(super) fn folder(&self) -> PathBuf {
        self.out.join(NAME)
    }

    pub(super) fn section_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.md"))
    }

    /// Writes a section with its pictures, and puts the document together again.
    pub(super) fn write(&self, experiment: &Experiment, section: &Section) -> anyhow::Result<()> {
        for (name, svg) in &section.pictures {
            output::write_file(&self.folder().join(name), svg)?;
        }
        let heading = format!("## {}: {}\n\n", experiment.name, experiment.title);
        let text = format!("{heading}{}", section.body);
        output::write_file(&self.section_file(experiment.name), &text)?;
        output::write_file(&self.file(), &self.compose()?)
    }

    fn compose(&self) -> anyhow::Result<String> {
        let (mut contents, mut sections) = (String::new(), String::new());
        for experiment in &EXPERIMENTS {
            let file = self.section_file(experiment.name);
            if !file.exists() {
                continue;
            }
            let text = fs::read_to_string(&file)
                .with_context(|| format!("{}: cannot be read", file.display()))?;
            let _ = writeln!(
                contents,
                "- [{}](#{}): {}",
                experiment.name,
                anchor(&text),
                experiment.title
            );
            let _ = write!(sections, "\n{}", text.replace("](./", &format!("]({NAME}/")));
        }
        Ok(format!("{INTRODUCTION}\n{contents}{sections}"))
    }
}

/// The anchor that Markdown renderers give to a section's heading.
fn anchor(section: &str) -> String {
    let heading = section.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_markdown() {
        let mut table = Table::new(["what", "found"]);
        table.add(["peak", "5,500"]);
        assert_eq!(table.markdown(), "| what | found |\n|---|---:|\n| peak | 5,500 |\n");
    }

    #[test]
    fn anchors_are_those_of_the_headings() {
        assert_eq!(
            anchor("## figure7: 5,880 synthetic workloads\n"),
            "figure7-5880-synthetic-workloads"
        );
    }
}
