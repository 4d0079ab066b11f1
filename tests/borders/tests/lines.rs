//! No line of the sources and documents is longer than 100 columns, so that two files fit side by
//! side. Tables, code blocks and links cannot be broken, and may be longer.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;

/// Folders that hold what was built or fetched.
const NOT_OURS: [&str; 5] = ["target", ".git", ".fermata", "out", "node_modules"];

#[test]
fn lines_have_at_most_100_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 100, "the sources are not where they were");
    let mut found = String::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("is UTF-8");
        let is_markdown = file.extension().is_some_and(|extension| extension == "md");
        for line in long_lines(&text, is_markdown) {
            found += &format!("{}:{line}\n", file.display());
        }
    }
    assert!(found.is_empty(), "more than {COLUMNS} columns:\n{found}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("can be read") {
        let path = entry.expect("can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            collect(&path, files);
        } else if name.ends_with(".rs") || name.ends_with(".md") {
            files.push(path);
        }
    }
}

/// The numbers of the lines that are too long.
fn long_lines(text: &str, is_markdown: bool) -> Vec<usize> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line_body = line.trim_start();
        let comment = line_body.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        let body = comment.unwrap_or(line_body).trim_start();
        if is_markdown && body.starts_with("```") {
            in_code = !in_code;
        }
        let is_code = is_markdown && (in_code || line.starts_with("    "));
        let is_whole = body.starts_with('|') || body.starts_with("![") || !body.contains(' ');
        if line.chars().count() > COLUMNS && !is_code && !is_whole {
            found.push(number);
        }
    }
    found
}

#[test]
fn tables_code_and_links_may_be_long_and_prose_may_not() {
    let long = "word ".repeat(21);
    let text = format!("{long}\n| {long}\n```\n{long}\n```\n    {long}\n![{long}](a.svg)\nshort\n");
    assert_eq!(long_lines(&text, true), [1]);
    assert_eq!(long_lines(&text, false), [1, 4, 6]);
    assert_eq!(long_lines(&format!("//! | {long}\n/// {long}"), false), [2]);
}
