//! Tables, lists and numbers in Markdown.

/// Columns of a page.
const WIDTH: usize = 100;

/// The lines of a table without the spaces that align columns; other lines as paragraphs.
pub(crate) fn compact(text: &str) -> String {
    let line = |line: &str| match line.starts_with('|') {
        true if line.contains("---") => {
            let rule = |cell: &str| if cell.ends_with(':') { "--:|" } else { "---|" };
            let cells = line.trim_matches('|').split('|');
            format!("|{}\n", cells.map(rule).collect::<String>())
        }
        true => line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n",
        false => paragraph(line),
    };
    text.lines().map(line).collect()
}

/// A list of items, each broken into lines of [`WIDTH`].
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().map(|item| wrapped(&item, "- ", "  ")).collect()
}

/// A paragraph broken into lines of [`WIDTH`].
pub(crate) fn paragraph(text: &str) -> String {
    wrapped(text, "", "")
}

fn wrapped(text: &str, first: &str, others: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= WIDTH && !line.trim().is_empty() {
            out.push_str(line.trim_end());
            out.push('\n');
            line = others.to_owned();
        }
        line.push_str(word);
        line.push(' ');
    }
    out + line.trim_end() + "\n"
}

/// Plain text as Markdown shows it, also in a cell.
pub(crate) fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*")
}

/// Code, also in a cell.
pub(crate) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Names as code, with commas.
pub(crate) fn codes<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

/// Three significant digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A power of two as one, other values with three significant digits and an exponent.
pub(crate) fn small(value: f64) -> String {
    let exponent = value.log2();
    if value == 0.0 {
        "0".into()
    } else if exponent.fract() == 0.0 && exponent < 0.0 {
        format!("2^{exponent}")
    } else {
        let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
        format!("{rounded:e}")
    }
}
