//! Text, numbers and tables as HTML. Every string of a record passes through [`text`].

use std::collections::BTreeMap;

/// Shown for a number that is absent or not finite.
pub(super) const NONE: &str = "–";

/// Escapes `raw` for element content and for quoted attributes. Control and bidirectional
/// characters, which could hide or reorder what stands beside them, become U+FFFD.
pub(super) fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `raw` cut to `limit` characters, not escaped.
pub(super) fn cut(raw: &str, limit: usize) -> String {
    if raw.chars().count() <= limit {
        return raw.to_owned();
    }
    raw.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// A number that can be drawn: finite, not negative, and of a size that sums stay finite.
pub(super) fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value)
}

/// `value` with `decimals` digits.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    sound(value).map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
}

/// As [`number`], but what would be shown as zero and is not is `<0.01` and the like.
pub(super) fn at_least(value: f64, decimals: usize) -> String {
    let least = 10f64.powi(-(decimals as i32));
    if value > 0.0 && value < 0.5 * least {
        return format!("<{least:.decimals$}");
    }
    number(value, decimals)
}

/// As [`number`], for a value that may be absent.
pub(super) fn maybe(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| number(value, decimals))
}

/// `value` with about three significant digits, for prose and tooltips.
pub(super) fn brief(value: f64) -> String {
    let decimals = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        0.0 => 0,
        _ => 3,
    };
    number(value, decimals)
}

/// A fraction in percent, such as `93.1 %`.
pub(super) fn percent(fraction: f64) -> String {
    sound(fraction).map_or_else(|| NONE.to_owned(), |f| format!("{} %", at_least(f * 100.0, 1)))
}

/// `1 step`, `2 steps`.
pub(super) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `sum` over `count`, absent if there is none or it is not [`sound`].
pub(super) fn ratio(sum: f64, count: f64) -> Option<f64> {
    if count > 0.0 { sound(sum / count) } else { None }
}

/// The value below which `fraction` of `sorted` lies.
pub(super) fn quantile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * fraction).round() as usize).copied()
}

/// The sound ones of `values`, ascending.
pub(super) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter_map(sound).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// How a column of a table is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// Left, wrapping.
    Prose,
    /// Left, monospaced.
    Name,
    /// As a name, of many short parts: never narrower than a few of them.
    Shape,
    /// Right, digits of one width.
    Figure,
    /// Left, made here: a bar, flags, a name with what is said of it.
    Made,
}

impl Set {
    fn class(self) -> &'static str {
        match self {
            Set::Prose => "p",
            Set::Name => "n",
            Set::Shape => "n shape",
            Set::Figure => "f",
            Set::Made => "b",
        }
    }
}

/// A cell of a table: the head of its column, which is plain text, how that is set, and what it
/// says: plain text too, but for [`Set::Made`], which comes from [`meter`], [`flags`], [`two`] and
/// the like.
pub(super) type Cell<'a> = (&'a str, Set, String);

/// A table under construction.
pub(super) struct Table<'a> {
    caption: &'a str,
    rows: Vec<Vec<Cell<'a>>>,
    /// Headings of groups, by the place of their first row.
    groups: BTreeMap<usize, String>,
}

impl<'a> Table<'a> {
    /// A table named `caption`, which is plain text.
    pub(super) fn new(caption: &'a str) -> Self {
        Self { caption, rows: Vec::new(), groups: BTreeMap::new() }
    }

    /// Adds a row. All have the same columns.
    pub(super) fn row(&mut self, cells: impl Into<Vec<Cell<'a>>>) {
        self.rows.push(cells.into());
    }

    /// Begins a group of rows under a heading, which is HTML.
    pub(super) fn group(&mut self, heading: String) {
        self.groups.insert(self.rows.len(), heading);
    }

    /// The finished table. A column that says nothing in any row is left out.
    pub(super) fn finish(&self) -> String {
        let says = |i: &usize| self.rows.iter().any(|row| !["", "-", NONE].contains(&&*row[*i].2));
        let columns = self.rows.first().map_or(0, Vec::len);
        let shown: Vec<usize> = (0..columns).filter(says).collect();
        let head = |i: &usize| {
            let (head, set, _) = &self.rows[0][*i];
            format!("<th scope=\"col\" class=\"{}\">{}</th>", set.class(), text(head))
        };
        let mut html = format!(
            "<div class=\"scroll\"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>\n",
            text(self.caption),
            shown.iter().map(head).collect::<String>()
        );
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(heading) = self.groups.get(&at) {
                html.push_str(&format!(
                    "<tr class=\"group\"><th scope=\"colgroup\" colspan=\"{}\">\
                     <span>{heading}</span></th></tr>\n",
                    shown.len()
                ));
            }
            let cell = |i: &usize| {
                let (_, set, body) = &row[*i];
                let body = if *set == Set::Made { body.clone() } else { text(body) };
                let class = set.class();
                match i {
                    0 => format!("<th scope=\"row\" class=\"{class}\">{body}</th>"),
                    _ => format!("<td class=\"{class}\">{body}</td>"),
                }
            };
            html.push_str(&format!("<tr>{}</tr>\n", shown.iter().map(cell).collect::<String>()));
        }
        html + "</tbody></table></div>\n"
    }
}

/// A bar of a table cell: `fraction` of a track that ends at 1.
pub(super) fn meter(fraction: f64) -> String {
    let Some(fraction) = sound(fraction) else { return String::new() };
    let width = (fraction.min(1.0) * 1000.0).round() / 10.0;
    format!(
        "<svg class=\"meter\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\"><rect class=\"track\" width=\"100\" height=\"8\"/>\
         <rect class=\"f0\" width=\"{width}\" height=\"8\"/></svg>"
    )
}

/// A name with a smaller line under it, as a cell.
pub(super) fn two(name: &str, below: &str) -> String {
    format!("<b>{}</b><small>{}</small>", text(name), text(below))
}

/// Doubts about a number, as a cell.
pub(super) fn flags(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("<span class=\"flag\">{}</span>", text(name)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A remark that must not be missed.
pub(super) fn warning(line: &str) -> String {
    format!("<p class=\"warning\">{}</p>\n", text(line))
}

/// A paragraph.
pub(super) fn paragraph(line: &str) -> String {
    format!("<p>{}</p>\n", text(line))
}

/// Headline figures: label, value, unit, remark.
pub(super) fn tiles(tiles: &[(&str, String, &str, String)]) -> String {
    let mut html = String::from("<dl class=\"tiles\">\n");
    for (label, value, unit, remark) in tiles {
        html.push_str(&format!(
            "<div><dt>{}</dt><dd class=\"value\">{} <small>{}</small></dd><dd>{}</dd></div>\n",
            text(label),
            text(value),
            text(unit),
            text(remark)
        ));
    }
    html.push_str("</dl>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_the_escape() {
        assert_eq!(
            text("<a b=\"c\" d='e'>&\u{0}\u{202e}"),
            "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn numbers_that_are_none() {
        for value in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(number(value, 2), NONE);
            assert_eq!(percent(value), NONE);
            assert_eq!(meter(value), "");
        }
        assert_eq!(number(0.0, 2), "0.00");
        assert_eq!(maybe(None, 1), NONE);
        assert_eq!([0.0, 1e-5, 6e-5].map(|v| at_least(v, 4)), ["0.0000", "<0.0001", "0.0001"]);
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&sorted([3.0, f64::NAN, 1.0, 2.0]), 0.5), Some(2.0));
    }

    #[test]
    fn brief_keeps_three_digits() {
        for (value, shown) in [(0.0, "0"), (0.0123, "0.012"), (1.234, "1.23"), (43.21, "43.2")] {
            assert_eq!(brief(value), shown);
        }
        assert_eq!(cut("attention", 6), "atten…");
    }
}
