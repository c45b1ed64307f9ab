//! Text, numbers and tables as HTML. Every string of a record passes through [`text`].

use std::collections::BTreeMap;

/// Shown for a number that is absent or not finite.
pub(super) const NONE: &str = "–";

/// Escapes `raw` for element content and for quoted attributes. Control and bidirectional
/// characters, which could hide or reorder their neighbours, become U+FFFD.
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

/// A number that can be drawn: finite, not negative, and of a size that sums stay finite.
pub(super) fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value)
}

/// `value` with `decimals` digits.
pub(crate) fn number(value: f64, decimals: usize) -> String {
    sound(value).map_or_else(|| NONE.to_owned(), |value| format!("{value:.decimals$}"))
}

/// Like [`number`], but a value that would be shown as zero and is not becomes `<0.01` and the like.
pub(super) fn at_least(value: f64, decimals: usize) -> String {
    let least = 10f64.powi(-(decimals as i32));
    if value > 0.0 && value < 0.5 * least {
        return format!("<{least:.decimals$}");
    }
    number(value, decimals)
}

/// Like [`number`], for a value that may be absent.
pub(super) fn maybe(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| number(value, decimals))
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

/// The value below which `fraction` of the sound ones of `values` lies.
pub(super) fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter_map(sound).collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * fraction).round() as usize).copied()
}

/// Setting of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// Left, wrapping.
    Prose,
    /// Left, monospaced.
    Name,
    /// Right, digits of one width.
    Figure,
    /// HTML from [`made`].
    Made,
}

/// A cell: head of its column, setting, and content. Head and content are plain text, but for
/// [`Set::Made`].
pub(super) type Cell<'a> = (&'a str, Set, String);

/// A table under construction.
pub(super) struct Table<'a> {
    caption: &'a str,
    rows: Vec<Vec<Cell<'a>>>,
    /// Headings of groups as HTML, by the place of their first row.
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

    /// The finished table, without the columns that are empty in every row.
    pub(super) fn finish(&self) -> String {
        let says = |i: &usize| self.rows.iter().any(|row| !["", "-", NONE].contains(&&*row[*i].2));
        let columns = self.rows.first().map_or(0, Vec::len);
        let shown: Vec<usize> = (0..columns).filter(says).collect();
        let class = |set: Set| match set {
            Set::Prose => "prose",
            Set::Name => "name",
            Set::Figure => "figure",
            Set::Made => "made",
        };
        let head = |i: &usize| {
            let (head, set, _) = &self.rows[0][*i];
            format!("<th scope=\"col\" class=\"{}\">{}</th>", class(*set), text(head))
        };
        let mut html = format!(
            "<div class=\"scroll\"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>\n",
            text(self.caption),
            shown.iter().map(head).collect::<String>()
        );
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(heading) = self.groups.get(&at) {
                let columns = shown.len();
                html.push_str(&format!(
                    "<tr class=\"group\"><th colspan=\"{columns}\">{heading}</th></tr>\n"
                ));
            }
            let cell = |i: &usize| {
                let (_, set, body) = &row[*i];
                let body = if *set == Set::Made { body.clone() } else { text(body) };
                format!("<td class=\"{}\">{body}</td>", class(*set))
            };
            html.push_str(&format!("<tr>{}</tr>\n", shown.iter().map(cell).collect::<String>()));
        }
        html + "</tbody></table></div>\n"
    }
}

/// Cells that are more than text.
pub(super) mod made {
    use super::{sound, text};

    /// A bar: `fraction` of a track that ends at 1.
    pub(in super::super) fn meter(fraction: f64) -> String {
        let Some(fraction) = sound(fraction) else { return String::new() };
        let width = (fraction.min(1.0) * 1000.0).round() / 10.0;
        format!(
            "<svg class=\"meter\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect class=\"track\" width=\"100\" height=\"8\"/>\
             <rect class=\"f0\" width=\"{width}\" height=\"8\"/></svg>"
        )
    }

    /// Doubts about a number.
    pub(in super::super) fn flags(names: &[String]) -> String {
        let flag = |name: &String| format!("<span class=\"flag\">{}</span>", text(name));
        names.iter().map(flag).collect::<Vec<_>>().join(" ")
    }
}

/// A remark that must not be missed.
pub(super) fn warning(line: &str) -> String {
    format!("<p class=\"warning\">{}</p>\n", text(line))
}

/// A paragraph.
pub(super) fn paragraph(line: &str) -> String {
    format!("<p>{}</p>\n", text(line))
}

/// A figure: heading, chart or table, and a caption in plain text that explains it.
pub(super) fn figure(heading: &str, content: &str, caption: &str) -> String {
    let caption = match caption.trim() {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", text(caption)),
    };
    format!("<figure>\n<h3>{}</h3>\n{content}{caption}</figure>\n", text(heading))
}

/// Headline figures: label, value, unit, remark.
pub(super) fn tiles(tiles: &[(&str, String, &str, String)]) -> String {
    let tile = |(label, value, unit, remark): &(&str, String, &str, String)| {
        format!(
            "<div><dt>{}</dt><dd class=\"value\">{} <small>{}</small></dd><dd>{}</dd></div>\n",
            text(label),
            text(value),
            text(unit),
            text(remark)
        )
    };
    format!("<dl class=\"tiles\">\n{}</dl>\n", tiles.iter().map(tile).collect::<String>())
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
            assert_eq!(made::meter(value), "");
        }
        assert_eq!((number(0.0, 2).as_str(), maybe(None, 1).as_str()), ("0.00", NONE));
        assert_eq!([0.0, 1e-5, 6e-5].map(|v| at_least(v, 4)), ["0.0000", "<0.0001", "0.0001"]);
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0, f64::NAN, 1.0, 2.0], 0.5), Some(2.0));
    }
}
