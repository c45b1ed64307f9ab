//! What the charts are drawn with: scales, ticks, paths and axes. Coordinates are those of the
//! view box, about one CSS pixel each.

use std::collections::BTreeMap;
use std::ops::Range;

use super::markup::text;

/// Colours by operation, so that an operation looks the same in every section.
pub(super) type Colours = BTreeMap<String, usize>;

/// A linear map from `low..=high` to `from..=to`; values outside are drawn at the edge.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale; an empty or unusable domain becomes one unit wide.
    pub(super) fn new(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low { high } else { low + 1.0 };
        Self { low, high, from, to }
    }

    /// Where `value` is drawn.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// The multiples of `step` inside the domain, and the digits they need.
    pub(super) fn ticks(&self, step: f64) -> (Vec<f64>, usize) {
        let first = (self.low / step - 1e-9).ceil();
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let ticks = (0..=MOST_TICKS)
            .map(|i| (first + i as f64) * step)
            .take_while(|t| *t <= self.high + step * 1e-9)
            .collect();
        (ticks, decimals)
    }

    /// The distance of about `wanted` ticks over the domain.
    pub(super) fn step(&self, wanted: usize) -> f64 {
        round_step((self.high - self.low) / wanted.max(1) as f64)
    }
}

/// A scale of ratios with 1 in its middle: twice lies as far to the right as half to the left.
pub(super) struct RatioScale {
    /// Logarithm of the right end.
    end: f64,
    inner: Scale,
}

impl RatioScale {
    /// A scale from `from` to `to` that holds all sound `values`, and at least 1 % to either side.
    pub(super) fn over(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let logs = values.into_iter().filter(|v| v.is_finite() && *v > 0.0).map(|v| v.ln().abs());
        // What lies further than this is drawn at the edge.
        const FURTHEST: f64 = 1e6;
        let end = (logs.fold(0.01, f64::max) * 1.08).min(FURTHEST.ln());
        Self { end, inner: Scale::new(-end, end, from, to) }
    }

    /// Where `ratio` is drawn; one that is none, or not above zero, at the left edge.
    pub(super) fn at(&self, ratio: f64) -> f64 {
        self.inner.at(if ratio > 0.0 { ratio.ln() } else { -self.end })
    }

    /// Ratios to mark, and the digits they need.
    pub(super) fn ticks(&self) -> (Vec<f64>, usize) {
        let top = self.end.exp();
        let inside = |v: &f64| v.ln().abs() <= self.end;
        if top < 2.5 {
            let step = round_step((top - 1.0) / 3.0);
            let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
            let ticks = (-3..=3).map(|i| 1.0 + f64::from(i) * step);
            return (ticks.filter(|v| *v > 0.0).filter(inside).collect(), decimals);
        }
        // 1, 2 and 5 of every power of ten; of many powers, only these.
        let steps: &[f64] = if top < 50.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let powers = (-6..=6).map(|power| 10f64.powi(power));
        let ticks: Vec<f64> = powers.flat_map(|p| steps.iter().map(move |s| s * p)).collect();
        let ticks: Vec<f64> = ticks.into_iter().filter(inside).collect();
        let least = ticks.first().copied().unwrap_or(1.0);
        (ticks, (-least.log10().floor()).clamp(0.0, 6.0) as usize)
    }
}

/// No axis has more ticks than this.
const MOST_TICKS: usize = 24;

/// The smallest of 1, 2, 5 times a power of ten that is not below `rough`.
pub(super) fn round_step(rough: f64) -> f64 {
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|m| m * power);
    steps.into_iter().find(|s| *s >= rough * 0.999).unwrap_or(10.0 * power)
}

/// At most `limit` runs of about one length that cover `0..count`: what a chart has pixels for.
pub(super) fn buckets(count: usize, limit: usize) -> Vec<Range<usize>> {
    let limit = limit.clamp(1, count.max(1));
    (0..limit)
        .map(|i| i * count / limit..(i + 1) * count / limit)
        .filter(|r| !r.is_empty())
        .collect()
}

/// A path of straight lines, written in tenths and relative steps to keep it short.
#[derive(Default)]
pub(super) struct Path {
    data: String,
    at: Option<(i64, i64)>,
}

impl Path {
    /// Draws to the point, or starts there.
    pub(super) fn to(&mut self, x: f64, y: f64) {
        let point = ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        let (letter, (dx, dy)) = match self.at {
            None => ('M', point),
            Some((x, y)) => ('l', (point.0 - x, point.1 - y)),
        };
        self.data.push(letter);
        self.data.push_str(&tenths(dx));
        let dy = tenths(dy);
        if !dy.starts_with('-') {
            self.data.push(' ');
        }
        self.data.push_str(&dy);
        self.at = Some(point);
    }

    /// Lifts the pen: the next point starts a line.
    pub(super) fn lift(&mut self) {
        self.at = None;
    }

    /// Closes the outline.
    pub(super) fn close(&mut self) {
        if self.at.take().is_some() {
            self.data.push('z');
        }
    }

    /// The path as an element of `class`, nothing for an empty one.
    pub(super) fn element(&self, class: &str) -> String {
        if self.data.is_empty() {
            return String::new();
        }
        format!("<path class=\"{class}\" d=\"{}\"/>\n", self.data)
    }
}

fn tenths(n: i64) -> String {
    let sign = if n < 0 { "-" } else { "" };
    let (whole, tenth) = (n.unsigned_abs() / 10, n.unsigned_abs() % 10);
    if tenth == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{tenth}") }
}

/// A coordinate or length, in tenths.
pub(super) fn px(value: f64) -> String {
    tenths((value * 10.0).round() as i64)
}

/// Text at a point; `class` sets colour and anchor. `raw` is escaped here.
pub(super) fn label(x: f64, y: f64, class: &str, raw: &str) -> String {
    format!("<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>\n", px(x), px(y), text(raw))
}

/// A straight line.
pub(super) fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n",
        px(from.0),
        px(from.1),
        px(to.0),
        px(to.1)
    )
}

/// A rectangle of `(x, y, width, height)` with a tooltip, which is escaped here.
pub(super) fn rect(area: (f64, f64, f64, f64), class: &str, tooltip: &str) -> String {
    let (x, y, width, height) = area;
    let size = format!("width=\"{}\" height=\"{}\"", px(width.max(0.0)), px(height.max(0.0)));
    let open = format!("<rect class=\"{class}\" x=\"{}\" y=\"{}\" {size}", px(x), px(y));
    if tooltip.is_empty() {
        return format!("{open}/>\n");
    }
    // A line break survives in a tooltip; `text` would make it a space.
    let lines: Vec<String> = tooltip.lines().map(text).collect();
    format!("{open}><title>{}</title></rect>\n", lines.join("\n"))
}

/// A chart of this size around `body`, described by `description` (escaped here).
pub(super) fn chart(width: f64, height: f64, description: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" \
         aria-label=\"{}\">\n{body}</svg></div>\n",
        px(width),
        px(height),
        text(description)
    )
}

/// A part of a chart, of this `class`, that covers `(from, width)` of it; parts beside each other
/// keep one scale. Described by `description` (escaped here), or hidden from readers without one.
pub(super) fn part(
    class: &str,
    (from, width): (f64, f64),
    height: f64,
    description: &str,
    body: &str,
) -> String {
    let role = match description {
        "" => "aria-hidden=\"true\"".to_owned(),
        words => format!("role=\"img\" aria-label=\"{}\"", text(words)),
    };
    format!(
        "<svg class=\"{class}\" viewBox=\"{} 0 {} {}\" {role}>\n{body}</svg>\n",
        px(from),
        px(width),
        px(height)
    )
}

/// A figure: heading, chart or table, and a caption (plain text) that says how to read it.
pub(super) fn figure(heading: &str, chart: &str, caption: &str) -> String {
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", text(caption)),
    };
    format!("<figure>\n<h3>{}</h3>\n{chart}{caption}</figure>\n", text(heading))
}

/// Heights for labels that want to stand at `wanted`, moved apart to `gap` and kept inside
/// `top..=bottom` as far as they fit. The order of `wanted` is kept from bottom to top.
pub(super) fn spread(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut placed = Vec::with_capacity(wanted.len());
    let mut limit = bottom;
    for want in wanted {
        let at = want.min(limit);
        placed.push(at);
        limit = at - gap;
    }
    let mut limit = top;
    for at in placed.iter_mut().rev() {
        *at = at.max(limit);
        limit = *at + gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let (ticks, decimals) = Scale::new(0.0, 2.5, 0.0, 100.0).ticks(0.5);
        assert_eq!((ticks, decimals), (vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 1));
        for (low, high) in [(0.0, 0.0), (f64::NAN, f64::INFINITY), (0.0, 1e14), (3.0, 3.0001)] {
            let scale = Scale::new(low, high, 0.0, 1.0);
            let (ticks, _) = scale.ticks(scale.step(5));
            assert!((1..=11).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
        assert_eq!([2.31, 0.31, 0.0, f64::NAN].map(round_step), [5.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn one_is_in_the_middle_and_twice_as_far_as_half() {
        let scale = RatioScale::over([0.5, 8.0, f64::NAN, 0.0], 0.0, 100.0);
        assert_eq!(scale.at(1.0), 50.0);
        assert!((scale.at(2.0) - 50.0 - (50.0 - scale.at(0.5))).abs() < 1e-9);
        assert!(scale.at(8.0) < 100.0 && scale.at(0.0) == 0.0);
        assert_eq!(scale.ticks(), (vec![0.2, 0.5, 1.0, 2.0, 5.0], 1));
        for (most, ticks, decimals) in [
            (1.0, vec![0.99, 0.995, 1.0, 1.005, 1.01], 3),
            (1.3, vec![0.8, 1.0, 1.2], 1),
            (400.0, vec![0.01, 0.1, 1.0, 10.0, 100.0], 2),
        ] {
            let (found, digits) = RatioScale::over([most], 0.0, 1.0).ticks();
            assert_eq!((found.len(), digits), (ticks.len(), decimals), "{most}: {found:?}");
            assert!(found.iter().zip(&ticks).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        }
    }

    #[test]
    fn buckets_cover_everything_once() {
        for (count, limit) in [(0, 5), (1, 5), (5, 5), (1024, 400), (7, 3)] {
            let runs = buckets(count, limit);
            assert!(runs.len() <= limit);
            assert_eq!(
                runs.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
                (0..count).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn paths_do_not_drift() {
        let mut path = Path::default();
        for i in 0..4 {
            path.to(f64::from(i) * 0.34, 1.0);
        }
        assert_eq!(path.element("p"), "<path class=\"p\" d=\"M0 1l0.3 0l0.4 0l0.3 0\"/>\n");
        path.lift();
        path.to(5.0, -1.0);
        assert!(path.element("p").contains("M5-1"));
    }

    #[test]
    fn labels_keep_their_distance_and_order() {
        let placed = spread(&[95.0, 94.0, 50.0, 2.0, 1.0], 14.0, 10.0, 100.0);
        assert!(placed.windows(2).all(|w| w[0] - w[1] >= 14.0 - 1e-9), "{placed:?}");
        assert!(placed.iter().all(|p| (10.0..=100.0).contains(p)), "{placed:?}");
    }
}
