//! Markdown with lines of at most 100 columns.

const COLUMNS: usize = 100;

/// The same text with its paragraphs and list items broken into lines. Headings, tables, pictures
/// and code cannot be broken.
pub(crate) fn wrap(text: &str) -> String {
    let (mut wrapped, mut in_code) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        let body = line.trim_start();
        in_code ^= body.starts_with("```");
        let is_whole = ["|", "![", "#", "```"].iter().any(|start| body.starts_with(start));
        if in_code || is_whole || line.starts_with("    ") || line.chars().count() <= COLUMNS {
            wrapped.push_str(line);
        } else {
            break_line(line, &mut wrapped);
        }
        wrapped.push('\n');
    }
    wrapped
}

/// What follows the first line is indented as far as the text of a list item.
fn break_line(line: &str, wrapped: &mut String) {
    let indent = match line.strip_prefix("- ") {
        Some(_) => "  ",
        None => "",
    };
    let mut column = 0;
    for word in line.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            wrapped.push('\n');
            wrapped.push_str(indent);
            column = indent.len();
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_broken_and_tables_are_not() {
        let long = ["word"; 25].join(" ");
        let text = format!("# {long}\n\n{long}\n- {long}\n| {long} |\n```\n{long}\n```\nshort\n");
        let wrapped = wrap(&text);
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines[0].len(), 126);
        assert_eq!((lines[2].len(), lines[3].len()), (99, 24));
        assert!(lines[4].starts_with("- word") && lines[5].starts_with("  word"), "{wrapped}");
        assert_eq!((lines[6].len(), lines[8].len()), (128, 124));
        assert_eq!(wrap(&wrapped), wrapped);
    }
}
