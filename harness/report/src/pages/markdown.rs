//! Tables, numbers and links in Markdown.

use std::fmt::Write;

/// A table under titles such as `a | b`; columns whose title begins with `>` are aligned to the
/// right.
pub(super) fn table(titles: &str, rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    let titles = titles.split(" | ").map(|t| (t.trim_start_matches('>'), t.starts_with('>')));
    let (names, right): (Vec<_>, Vec<_>) = titles.unzip();
    let _ = writeln!(text, "| {} |", names.join(" | "));
    let rules = right.into_iter().map(|right| if right { "--:|" } else { "---|" });
    let _ = writeln!(text, "|{}", rules.collect::<String>());
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Plain text as Markdown shows it, also in a cell.
pub(super) fn plain(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*")
}

/// A cell, with a dash for nothing.
pub(super) fn dash(text: String) -> String {
    if text.is_empty() { "–".into() } else { text }
}

/// Code, also in a cell.
pub(super) fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Three significant digits.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A power of two as one, else three significant digits with an exponent.
pub(super) fn small(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let exponent = value.log2();
    if exponent.fract() == 0.0 && exponent < 0.0 {
        format!("2^{exponent}")
    } else {
        let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
        format!("{rounded:e}")
    }
}

/// Replaces the links of a text that lies at `from` by links from `to`, both folders below the root
/// of the repository. `place` says where else a target is to be found.
pub(super) fn relink(text: &str, from: &str, to: &str, place: impl Fn(&str) -> String) -> String {
    let mut pieces = text.split("](");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        out.push_str("](");
        let end = piece.find([')', '#']).unwrap_or(0);
        let (path, tail) = piece.split_at(end);
        match path.is_empty() || path.contains("://") {
            true => out.push_str(path),
            false => out.push_str(&relative(to, &place(&resolve(from, path)))),
        }
        out.push_str(tail);
    }
    out
}

fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn relative(folder: &str, path: &str) -> String {
    let from: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    let to: Vec<&str> = path.split('/').collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", from.len() - common);
    up.chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_move_with_their_text() {
        let page = |path: &str| match path.strip_suffix("/page.md") {
            Some(folder) => format!("docs/kernels/{}.md", folder.rsplit('/').next().unwrap()),
            None => path.to_owned(),
        };
        let moved = |text: &str| relink(text, "kernels/ops/matvec/gemv", "docs/kernels", page);
        assert_eq!(moved("[a](../gemv_q/page.md#order)"), "[a](gemv_q.md#order)");
        assert_eq!(moved("[a](../../../../docs/x.md) b"), "[a](../x.md) b");
        assert_eq!(moved("[a](#b) [c](https://d.e/f)"), "[a](#b) [c](https://d.e/f)");
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [1234.6, 99.96, 4.2, 0.6].map(digits);
        assert_eq!(shown, ["1235", "100.0", "4.20", "0.60"]);
        let shown = [0.0, 1.0 / 1024.0, 9e-6].map(small);
        assert_eq!(shown, ["0", "2^-10", "9e-6"]);
    }

    #[test]
    fn text_does_not_break_a_cell() {
        assert_eq!(plain("3 + 2|x| of vec4<u32>"), "3 + 2\\|x\\| of vec4\\<u32>");
        assert_eq!(
            table("a | >b", &[vec!["1".into(), "2".into()]]),
            "| a | b |\n|---|--:|\n| 1 | 2 |\n"
        );
    }
}
