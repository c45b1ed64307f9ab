//! Text and numbers as HTML. Every string of a record passes through [`text`].

/// Shown for a number that is absent or not finite.
pub(crate) const NONE: &str = "–";

/// Escapes `raw` for element content and for quoted attributes. Control and bidirectional
/// characters, which could hide or reorder their neighbours, become U+FFFD.
pub(crate) fn text(raw: &str) -> String {
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
pub(crate) fn sound(value: f64) -> Option<f64> {
    (value.is_finite() && (0.0..1e15).contains(&value)).then_some(value)
}

/// `value` with `decimals` digits, or [`NONE`]. A value that would be shown as zero and is not
/// becomes `<0.01` and the like.
pub(crate) fn number(value: impl Into<Option<f64>>, decimals: usize) -> String {
    let least = 10f64.powi(-(decimals as i32));
    match value.into().and_then(sound) {
        None => NONE.to_owned(),
        Some(value) if value > 0.0 && value < 0.5 * least => format!("<{least:.decimals$}"),
        Some(value) => format!("{value:.decimals$}"),
    }
}

/// A fraction in percent, such as `93.1 %`.
pub(crate) fn percent(fraction: impl Into<Option<f64>>) -> String {
    let percent = number(fraction.into().map(|fraction| 100.0 * fraction), 1);
    if percent == NONE { percent } else { percent + " %" }
}

/// `1 step`, `2 steps`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `sum` over `count`, absent if there is none or it is not [`sound`].
pub(crate) fn ratio(sum: f64, count: f64) -> Option<f64> {
    if count > 0.0 { sound(sum / count) } else { None }
}

/// The value below which `fraction` of the sound ones of `values` lies.
pub(crate) fn quantile(values: &[f64], fraction: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.iter().copied().filter_map(sound).collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * fraction).round() as usize).copied()
}

/// Cells that are more than text.
pub(crate) mod made {
    use super::{sound, text};

    /// A bar: `fraction` of a track that ends at 1.
    pub(crate) fn meter(fraction: f64) -> String {
        let Some(fraction) = sound(fraction) else { return String::new() };
        let width = (fraction.min(1.0) * 1000.0).round() / 10.0;
        format!(
            "<svg class=\"meter\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><rect class=\"track\" width=\"100\" height=\"8\"/>\
             <rect class=\"f0\" width=\"{width}\" height=\"8\"/></svg>"
        )
    }

    /// Doubts about a number.
    pub(crate) fn flags(names: &[impl ToString]) -> String {
        let flag = |name: String| format!("<span class=\"flag\">{}</span>", text(&name));
        names.iter().map(|name| flag(name.to_string())).collect::<Vec<_>>().join(" ")
    }
}

/// A remark that must not be missed.
pub(crate) fn warning(line: &str) -> String {
    format!("<p class=\"warning\">{}</p>\n", text(line))
}

/// A paragraph.
pub(crate) fn paragraph(line: &str) -> String {
    format!("<p>{}</p>\n", text(line))
}

/// A figure: heading, chart or table, and a caption in plain text that explains it.
pub(crate) fn figure(heading: &str, content: &str, caption: &str) -> String {
    let caption = match caption.trim() {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", text(caption)),
    };
    format!("<figure>\n<h3>{}</h3>\n{content}{caption}</figure>\n", text(heading))
}

/// Headline figures: label, value, unit, remark.
pub(crate) fn tiles(tiles: &[(&str, String, &str, String)]) -> String {
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
            assert_eq!((number(value, 2).as_str(), percent(value).as_str()), (NONE, NONE));
            assert_eq!(made::meter(value), "");
        }
        assert_eq!((number(0.0, 2).as_str(), number(None, 1).as_str()), ("0.00", NONE));
        assert_eq!([0.0, 1e-5, 6e-5].map(|v| number(v, 4)), ["0.0000", "<0.0001", "0.0001"]);
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[3.0, f64::NAN, 1.0, 2.0], 0.5), Some(2.0));
    }
}
