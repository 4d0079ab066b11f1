//! From the text of a file to values; who reads an error finds the place.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::InputError;

/// Reads TOML. An error of syntax has a line, any other a key, and the table that it is in, if that
/// is one of `tables`, of which a file may have several.
pub fn parse<T: DeserializeOwned>(
    file: &Path,
    text: &str,
    tables: &[&str],
) -> Result<T, InputError> {
    let syntax = |error: &toml::de::Error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
        let line = before.matches('\n').count();
        let written: String = text.lines().nth(line).unwrap_or_default().chars().take(60).collect();
        let reason = format!("{}: '{}'", in_one_line(error.message()), written.trim());
        InputError::Syntax { file: file.to_owned(), line: line + 1, reason }
    };
    let document = toml::Deserializer::parse(text).map_err(|error| syntax(&error))?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let reason = in_one_line(error.inner().message());
        let (place, key) = locate(text, error.path(), tables);
        if key.is_empty() {
            return syntax(error.inner());
        }
        InputError::Key { file: file.to_owned(), place, key, reason }
    })
}

/// Reads JSON. An error of syntax has a line, any other a key too.
pub fn parse_json<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, InputError> {
    let mut document = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let key = error.path().to_string();
        let reason = in_one_line(&error.inner().to_string());
        match key.as_str() {
            "." => {
                let line = error.inner().line();
                InputError::Syntax { file: file.to_owned(), line, reason }
            }
            _ => InputError::Key { file: file.to_owned(), place: None, key, reason },
        }
    })
}

/// Which table, by name where it has one, and which key of it.
fn locate(
    text: &str,
    path: &serde_path_to_error::Path,
    tables: &[&str],
) -> (Option<String>, String) {
    let document: Option<toml::Value> = text.parse().ok().map(toml::Value::Table);
    let mut value = document.as_ref();
    let mut segments = path.iter().peekable();
    let mut places: Vec<String> = Vec::new();
    let mut key = String::new();
    while let Some(segment) = segments.next() {
        let Segment::Map { key: part } = segment else { continue };
        value = value.and_then(|value| value.get(part));
        match segments.peek() {
            // A list of plain values is a key like any other; only tables have a place.
            Some(Segment::Seq { index }) if key.is_empty() && tables.contains(&part.as_str()) => {
                value = value.and_then(|value| value.get(*index));
                let name = value.and_then(name_of).map(|name| format!("'{name}'"));
                places.push(format!("{part} {}", name.unwrap_or((index + 1).to_string())));
                segments.next();
            }
            _ if key.is_empty() => key.clone_from(part),
            _ => key = format!("{key}.{part}"),
        }
    }
    ((!places.is_empty()).then(|| places.join(": ")), key)
}

/// What a table is called.
fn name_of(table: &toml::Value) -> Option<&str> {
    let name = table.get("name").or(table.get("model"))?.as_str()?;
    (!name.contains(char::is_control)).then_some(name)
}

/// Serde names Rust's types, which the writer of a file need not know.
fn in_one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(", ");
    text.replace("expected f64", "expected a number")
        .replace("expected i64", "expected a whole number")
}
