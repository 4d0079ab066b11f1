//! Sections of Markdown with pictures, and the document that they make up.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use fermata_chart::{Figure, Panel, Row};
use fermata_files::output;

use crate::wrap::wrap;

/// What an experiment has to say, below its heading.
#[derive(Default)]
pub(super) struct Section {
    /// Markdown. Pictures are linked with `./`, relative to the section's own file.
    pub(super) body: String,
    /// Pictures next to the section: names without folder, with the text of each.
    pub(super) files: Vec<(String, String)>,
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
        self.files.push((format!("{name}.svg"), svg));
    }
}

/// The text of a number; in bold where the number is not what is asked.
pub(super) fn bold_if(missed: bool, text: String) -> String {
    if missed { format!("**{text}**") } else { text }
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

/// A picture as wide as all others: rows of panels, each with its height.
pub(super) fn figure(title: &str, subtitle: &str, rows: Vec<(f64, Vec<Box<dyn Panel>>)>) -> String {
    let rows = rows.into_iter().map(|(height, panels)| Row { height, panels }).collect();
    Figure { title: title.to_owned(), subtitle: subtitle.to_owned(), width: WIDTH, rows }.render()
}

const WIDTH: f64 = 1200.0;

/// A section's name and title.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heading {
    /// Of its file, and by which it is asked for.
    pub(super) name: &'static str,
    /// What it is about.
    pub(super) title: &'static str,
}

/// A document that is put together from its sections, each of which is a file.
pub(super) struct Document {
    /// Of the file, and of the folder with its sections.
    pub(super) name: &'static str,
    /// Where both are.
    pub(super) out: PathBuf,
    /// Markdown above the sections, with the title.
    pub(super) introduction: &'static str,
    /// All sections that there may be, in their order.
    pub(super) headings: Vec<Heading>,
}

impl Document {
    /// The whole document.
    pub(super) fn file(&self) -> PathBuf {
        self.out.join(format!("{}.md", self.name))
    }

    /// The folder of sections and pictures.
    pub(super) fn folder(&self) -> PathBuf {
        self.out.join(self.name)
    }

    pub(super) fn section_file(&self, name: &str) -> PathBuf {
        self.folder().join(format!("{name}.md"))
    }

    /// Writes a section with its files, and puts the document together again.
    pub(super) fn write(&self, heading: Heading, section: &Section) -> anyhow::Result<()> {
        for (name, text) in &section.files {
            output::write_file(&self.folder().join(name), text)?;
        }
        let text = format!("## {}: {}\n\n{}", heading.name, heading.title, wrap(&section.body));
        output::write_file(&self.section_file(heading.name), &text)?;
        output::write_file(&self.file(), &self.compose()?)
    }

    fn compose(&self) -> anyhow::Result<String> {
        let (mut contents, mut sections) = (String::new(), String::new());
        for Heading { name, title } in &self.headings {
            let file = self.section_file(name);
            if !file.exists() {
                continue;
            }
            let text = fs::read_to_string(&file)
                .with_context(|| format!("{}: cannot be read", file.display()))?;
            let _ = writeln!(contents, "- [{name}](#{}): {title}", anchor(&text));
            let _ = write!(sections, "\n{}", text.replace("](./", &format!("]({}/", self.name)));
        }
        let contents = wrap(&contents);
        Ok(format!("{}\n{contents}{sections}", wrap(self.introduction)))
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
