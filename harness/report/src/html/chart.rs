//! Three forms of chart as SVG: horizontal bars, lines over steps, and a stacked timeline.
//! Coordinates are those of the view box, about one CSS pixel each.

use crate::markup::{number, quantile, ratio, sound, text};

const WIDTH: f64 = 980.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;
/// Points of a line: one for every third pixel.
const POINTS: usize = 320;

/// A linear map from `low..=high` to `from..=to`; values outside are drawn at the edge.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        if value.is_nan() {
            return self.from;
        }
        let part = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + part * (self.to - self.from)
    }

    /// A scale whose ends are multiples of the distance of its ticks, and those with their labels.
    fn rounded(low: f64, high: f64, from: f64, to: f64) -> (Self, Vec<(f64, String)>) {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / 6.0);
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks = (0..=(last - first) as usize).map(|i| (first + i as f64) * step);
        let scale = Self { low: first * step, high: last * step, from, to };
        // Rounded to nothing, a small negative tick would be `-0`.
        let label =
            |tick: f64| format!("{:.decimals$}", if tick.abs() < step / 2.0 { 0.0 } else { tick });
        (scale, ticks.map(|tick| (tick, label(tick))).collect())
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|m| m * power);
    steps.into_iter().find(|s| *s >= rough * 0.999).unwrap_or(10.0 * power)
}

/// Text at a point; `class` sets its anchor. `raw` is escaped here.
fn label(x: f64, y: f64, class: &str, raw: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", text(raw))
}

fn line((x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) -> String {
    format!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>\n")
}

fn rect(x: f64, y: f64, (width, height): (f64, f64), class: &str) -> String {
    let width = width.max(0.0);
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"/>\n"
    )
}

/// The picture, with a description for readers who do not see it.
fn picture(height: f64, description: &str, body: &str) -> String {
    format!(
        "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
         role=\"img\" aria-label=\"{}\">\n{body}</svg></div>\n",
        text(description)
    )
}

/// A row of a bar chart.
pub(super) struct Bar {
    /// Name before the bar.
    pub(super) name: String,
    /// Ends of the bar.
    pub(super) ends: [f64; 2],
    /// A value marked within it.
    pub(super) mark: f64,
    /// Class of its colour.
    pub(super) colour: &'static str,
    /// Figures after the bar.
    pub(super) label: String,
}

/// Horizontal bars on one axis named `unit`, with vertical lines at named limits.
pub(super) fn bars(unit: &str, rows: &[Bar], limits: &[(&str, f64)]) -> String {
    const ROW: f64 = 22.0;
    let (left, right) = (190.0, 740.0);
    let values = rows.iter().flat_map(|row| row.ends);
    let values = values.chain(limits.iter().map(|(_, limit)| *limit)).filter(|v| v.is_finite());
    let (low, high) = values.fold((0.0, 0.0), |(low, high), v| (v.min(low), v.max(high)));
    let (scale, ticks) = Scale::rounded(low.max(-1e12), high.min(1e12), left, right);
    let bottom = TOP + rows.len() as f64 * ROW;
    let mut body = String::new();
    for (tick, shown) in ticks {
        let x = scale.at(tick);
        body.push_str(&line((x, TOP), (x, bottom), "grid"));
        body.push_str(&label(x, bottom + 16.0, "mid", &shown));
    }
    body.push_str(&label(right, bottom + 34.0, "end", unit));
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + i as f64 * ROW;
        let [from, to] = row.ends.map(|v| scale.at(if v.is_finite() { v } else { 0.0 }));
        body.push_str(&rect(from, y + 4.0, ((to - from).max(1.0), ROW - 8.0), row.colour));
        let x = scale.at(row.mark);
        body.push_str(&line((x, y + 1.0), (x, y + ROW - 1.0), "limit"));
        let name: String = row.name.chars().take(26).collect();
        body.push_str(&label(left - 8.0, y + 15.0, "end", &name));
        body.push_str(&label(right + 12.0, y + 15.0, "start", &row.label));
    }
    for (name, limit) in limits {
        let x = scale.at(*limit);
        body.push_str(&line((x, TOP - 4.0), (x, bottom), "limit"));
        body.push_str(&label(x, 16.0, "mid", name));
    }
    picture(bottom + BOTTOM, &format!("{} bars, {unit}", rows.len()), &body)
}

/// One value a step.
pub(super) struct Series {
    /// Name in the legend.
    pub(super) name: String,
    /// Colour, 0 to 9.
    pub(super) colour: usize,
    /// One value a step; one that is not sound is a gap in a line and nothing in a band.
    pub(super) values: Vec<f64>,
    /// Figures after the name in the legend.
    pub(super) legend: String,
}

/// A chart over steps: bands stacked on each other, and lines above them.
#[derive(Default)]
pub(super) struct Steps<'a> {
    /// Unit of the values.
    pub(super) unit: &'a str,
    /// Name of the horizontal axis.
    pub(super) axis: &'a str,
    /// Number of the first step on that axis.
    pub(super) first: usize,
    /// Stacked, from the bottom.
    pub(super) bands: Vec<Series>,
    /// Drawn over the bands.
    pub(super) lines: Vec<Series>,
}

impl Steps<'_> {
    /// The chart, its legend, and a sentence about omitted values.
    pub(super) fn draw(&self) -> String {
        let count = self.bands.iter().chain(&self.lines).map(|s| s.values.len()).max().unwrap_or(0);
        let runs = count.clamp(1, POINTS);
        let runs: Vec<_> = (0..runs).map(|i| i * count / runs..(i + 1) * count / runs).collect();
        let band = |series: &Series| -> Vec<f64> {
            let mean = |run: &std::ops::Range<usize>| {
                let values = series.values.get(run.clone()).unwrap_or_default();
                let sum = values.iter().copied().filter_map(sound).sum();
                ratio(sum, run.len() as f64).unwrap_or(0.0)
            };
            runs.iter().map(mean).collect()
        };
        let mut heights = vec![0.0; runs.len()];
        let bands: Vec<Vec<f64>> = self
            .bands
            .iter()
            .map(|series| {
                heights.iter_mut().zip(band(series)).for_each(|(sum, value)| *sum += value);
                heights.clone()
            })
            .collect();
        let median = |s: &Series, run: &std::ops::Range<usize>| {
            quantile(s.values.get(run.clone()).unwrap_or_default(), 0.5)
        };
        let lines: Vec<Vec<Option<f64>>> =
            self.lines.iter().map(|s| runs.iter().map(|run| median(s, run)).collect()).collect();
        // A few extreme steps must not flatten all the others.
        let all: Vec<f64> =
            heights.iter().copied().chain(lines.iter().flatten().copied().flatten()).collect();
        let at = |fraction| quantile(&all, fraction).unwrap_or(0.0);
        let (usual, most) = (at(0.98), at(1.0));
        let top = if usual > 0.0 && most > 2.0 * usual { 1.2 * usual } else { most };
        let (left, right, bottom) = (52.0, WIDTH - 8.0, TOP + 240.0);
        let (y, ticks) = Scale::rounded(0.0, top, bottom, TOP);
        let last = (self.first + count.max(2) - 1) as f64;
        let x = Scale { low: self.first as f64, high: last, from: left, to: right };
        let mut body = label(4.0, 13.0, "start", self.unit);
        for (tick, shown) in &ticks {
            body.push_str(&line((left, y.at(*tick)), (right, y.at(*tick)), "grid"));
            body.push_str(&label(left - 6.0, y.at(*tick) + 4.0, "end", shown));
        }
        for i in 0..=4 {
            let step = self.first + i * count.saturating_sub(1) / 4;
            let anchor = ["start", "mid", "mid", "mid", "end"][i];
            body.push_str(&label(x.at(step as f64), bottom + 17.0, anchor, &step.to_string()));
        }
        body.push_str(&label(f64::midpoint(left, right), bottom + 34.0, "mid", self.axis));
        let place = |i: usize| x.at((self.first + (runs[i].start + runs[i].end) / 2) as f64);
        // Each area reaches down to zero: the tallest is painted first.
        for (series, heights) in self.bands.iter().zip(&bands).rev() {
            let points = heights.iter().enumerate();
            let path: String =
                points.map(|(i, h)| format!("L{:.1} {:.1}", place(i), y.at(*h))).collect();
            let colour = series.colour;
            let (start, end) = (place(0), place(runs.len() - 1).max(place(0) + 1.0));
            body.push_str(&format!(
                "<path class=\"f{colour}\" d=\"M{start:.1} {bottom:.1}{path}L{end:.1} {bottom:.1}z\"/>\n"
            ));
        }
        for (series, values) in self.lines.iter().zip(&lines) {
            let (mut path, mut pen) = (String::new(), 'M');
            for (i, value) in values.iter().enumerate() {
                if let Some(value) = value {
                    path.push_str(&format!("{pen}{:.1} {:.1}", place(i), y.at(*value)));
                }
                pen = if value.is_some() { 'L' } else { 'M' };
            }
            body.push_str(&format!("<path class=\"line s{}\" d=\"{path}\"/>\n", series.colour));
        }
        let names: Vec<&str> =
            self.bands.iter().chain(&self.lines).map(|s| s.name.as_str()).collect();
        let description = format!("{} over {count} steps: {}", self.unit, names.join(", "));
        let mut html = picture(bottom + BOTTOM, &description, &body) + "<ul class=\"legend\">\n";
        for Series { name, colour, legend, .. } in self.bands.iter().rev().chain(&self.lines) {
            html.push_str(&format!(
                "<li><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"f{colour}\" \
                 width=\"10\" height=\"10\"/></svg> {} <span>{}</span></li>\n",
                text(name),
                text(legend)
            ));
        }
        html.push_str("</ul>\n");
        if top < most {
            let (most, unit) = (number(most, 2), text(self.unit));
            html.push_str(&format!(
                "<p class=\"facts\">Cut off: values up to {most} {unit}.</p>\n"
            ));
        }
        html
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_the_ends() {
        let (scale, ticks) = Scale::rounded(-0.3, 2.5, 0.0, 100.0);
        let shown: Vec<&str> = ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(shown, ["-0.5", "0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!((scale.at(-9.0), scale.at(1.0), scale.at(9.0)), (0.0, 50.0, 100.0));
        for (low, high) in [(0.0, 0.0), (f64::NAN, f64::INFINITY), (0.0, 1e14), (3.0, 3.0001)] {
            let (_, ticks) = Scale::rounded(low, high, 0.0, 1.0);
            assert!((2..=9).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
    }

    #[test]
    fn a_line_has_gaps_and_a_stack_its_sum() {
        let series = |values: &[f64]| Series {
            name: "a".into(),
            colour: 0,
            values: values.to_vec(),
            legend: String::new(),
        };
        let lines = vec![series(&[1.0, f64::NAN, 2.0, 2.0])];
        let html = Steps { lines, ..Steps::default() }.draw();
        let path = html.split("class=\"line s0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        let bands = vec![series(&[1.0, 1.0]), series(&[2.0, 1.0])];
        let html = Steps { bands, ..Steps::default() }.draw();
        // The upper band is painted first, at the height of both: the top of the plot, then 2 of 3.
        let upper = html.split("class=\"f0\" d=\"").nth(1).unwrap();
        assert!(upper.contains(&format!("L52.0 {TOP:.1}L")), "{upper}");
        // Extreme steps are cut off, and the page says how far they go.
        let lines = vec![series(&[[1.0; 99].as_slice(), &[50.0]].concat())];
        let html = Steps { lines, unit: "ms", ..Steps::default() }.draw();
        assert!(html.contains("Cut off: values up to 50.00 ms."), "{html}");
    }
}
