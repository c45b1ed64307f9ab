//! Charts over the steps of a decode: bands stacked on each other, lines above them, a legend
//! whose entries stand beside what they name.

use std::ops::Range;

use super::markup::{brief, cut, paragraph, plural, quantile, ratio, sorted, sound, text};
use super::svg::{Path, Scale, buckets, label, line, part, px, rect, round_step, spread};

const WIDTH: f64 = 980.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;
const LEGEND: f64 = 292.0;
/// Points of a line: one every two pixels of the plot.
const POINTS: usize = 320;
/// Columns with a tooltip.
const TIPS: usize = 96;

/// One value a step.
pub(super) struct Series {
    /// Name in the legend and in tooltips.
    pub(super) name: String,
    /// Colour, 0 to 8; 8 is the grey of what is left over.
    pub(super) slot: usize,
    /// One value a step; one that is not sound is a gap in a line and nothing in a band.
    pub(super) values: Vec<f64>,
    /// What the legend says after the name, in two columns.
    pub(super) legend: (String, String),
}

impl Series {
    fn over(&self, run: &Range<usize>) -> Vec<f64> {
        sorted(self.values.get(run.clone()).unwrap_or_default().iter().copied())
    }

    fn mean(&self, run: &Range<usize>) -> f64 {
        let values = self.over(run);
        ratio(values.iter().sum(), run.len() as f64).unwrap_or(0.0)
    }

    fn median(&self, run: &Range<usize>) -> Option<f64> {
        quantile(&self.over(run), 0.5)
    }
}

/// A chart over steps.
pub(super) struct StepChart<'a> {
    /// What the chart shows, for readers who do not see it.
    pub(super) description: String,
    /// Unit of the values.
    pub(super) unit: &'a str,
    /// What a step is called on the axis.
    pub(super) step: &'a str,
    /// Position of each step for tooltips, or empty.
    pub(super) positions: &'a [usize],
    /// Stacked, from the bottom.
    pub(super) bands: Vec<Series>,
    /// Drawn over the bands.
    pub(super) lines: Vec<Series>,
    /// Heading of the legend.
    pub(super) legend: &'a str,
    /// A step to mark, and what to write there.
    pub(super) mark: Option<(usize, String)>,
    /// The axis starts at zero; otherwise where the values are.
    pub(super) from_zero: bool,
    /// Height of the plot.
    pub(super) height: f64,
}

/// Where things stand in a chart.
struct Frame {
    x: Scale,
    y: Scale,
    right: f64,
    bottom: f64,
    /// Distance of the ticks on the value axis.
    step: f64,
}

impl StepChart<'_> {
    fn count(&self) -> usize {
        self.bands.iter().chain(&self.lines).map(|s| s.values.len()).max().unwrap_or(0)
    }

    /// The chart and a sentence about what it leaves out, if anything.
    pub(super) fn draw(&self) -> (String, String) {
        let count = self.count();
        if count == 0 {
            return (paragraph("No steps were recorded."), String::new());
        }
        let (low, high, step, note) = self.domain(count);
        let right = WIDTH - LEGEND;
        let bottom = TOP + self.height;
        let steps = if count == 1 { (-0.5, 0.5) } else { (0.0, (count - 1) as f64) };
        let frame = Frame {
            x: Scale::new(steps.0, steps.1, LEFT, right),
            y: Scale::new(low, high, bottom, TOP),
            right,
            bottom,
            step,
        };
        let mut body = self.axes(&frame);
        body.push_str(&self.draw_bands(&frame, count));
        body.push_str(&self.draw_lines(&frame, count));
        body.push_str(&self.draw_mark(&frame));
        body.push_str(&self.tooltips(&frame, count));
        let height = bottom + BOTTOM;
        let plot = part("plot", (0.0, right), height, &self.description, &body);
        let beside = self.draw_legend(&frame, count);
        let beside = part("beside", (right, LEGEND), height, "", &beside);
        let mut notes = Vec::new();
        if count > POINTS {
            let kind = match (self.bands.is_empty(), self.lines.is_empty()) {
                (true, _) => "the median, with the range behind it,",
                (false, true) => "the mean",
                (false, false) => "the mean (lines: the median)",
            };
            let most = count.div_ceil(POINTS);
            notes.push(format!("Each point is {kind} of up to {most} steps."));
        }
        notes.extend(note);
        let below = self.legend_below();
        let html = format!("<div class=\"steps\">\n{plot}{beside}</div>\n{below}");
        (html, notes.join(" "))
    }

    /// Ends of the value axis, the distance of its ticks, and what a reader must know of it. A few
    /// extreme steps must not flatten all the others: what lies far outside is cut off, and the
    /// sentence says so.
    fn domain(&self, count: usize) -> (f64, f64, f64, Vec<String>) {
        let totals = (0..count).map(|i| {
            self.bands.iter().filter_map(|s| s.values.get(i).copied().and_then(sound)).sum::<f64>()
        });
        let bands: Vec<f64> = if self.bands.is_empty() { Vec::new() } else { totals.collect() };
        let all = sorted(bands.into_iter().chain(self.lines.iter().flat_map(|s| s.values.clone())));
        let at = |fraction| quantile(&all, fraction).unwrap_or(0.0);
        let (least, most) = (at(0.0), at(1.0));
        let usual = (at(0.02), at(0.98));
        let cut_off = all.len() >= 8 && usual.1 > 0.0 && most > 2.0 * usual.1;
        let top = if cut_off { usual.1 * 1.2 } else { most };
        let base = if self.from_zero || usual.0 < 0.5 * top {
            0.0
        } else {
            (top - 1.15 * (top - usual.0).max(0.16 * top)).max(0.0)
        };
        let step = round_step((top - base) / 6.0);
        let (low, high) = ((base / step).floor() * step, (top / step).ceil() * step);
        let outside = all.iter().filter(|v| **v < low || **v > high).count();
        let mut notes = Vec::new();
        if low > 0.0 {
            notes.push("The axis does not start at zero.".to_owned());
        }
        if outside > 0 {
            notes.push(format!(
                "{} outside the scale (smallest {}, largest {} {}).",
                if outside == 1 { "1 value lies".into() } else { format!("{outside} values lie") },
                brief(least),
                brief(most),
                self.unit
            ));
        }
        (low, high, step, notes)
    }

    fn axes(&self, frame: &Frame) -> String {
        let mut out = label(4.0, 13.0, "unit", self.unit);
        let (ticks, decimals) = frame.y.ticks(frame.step);
        for tick in ticks {
            let y = frame.y.at(tick);
            out.push_str(&line((LEFT, y), (frame.right, y), "grid"));
            out.push_str(&label(LEFT - 6.0, y + 4.0, "end", &format!("{tick:.decimals$}")));
        }
        let (ticks, _) = frame.x.ticks(frame.x.step(8).max(1.0));
        for tick in ticks.into_iter().filter(|t| *t >= 0.0) {
            let x = frame.x.at(tick);
            out.push_str(&line((x, frame.bottom), (x, frame.bottom + 4.0), "axis"));
            out.push_str(&label(x, frame.bottom + 17.0, "mid", &format!("{tick:.0}")));
        }
        let middle = f64::midpoint(LEFT, frame.right);
        out.push_str(&label(middle, frame.bottom + 34.0, "mid unit", self.step));
        out
    }

    /// Where the `i`th of `all` runs is drawn: the outer ones at the edges of the plot.
    fn points(frame: &Frame, runs: &[Range<usize>]) -> Vec<(f64, usize)> {
        let last = runs.len().saturating_sub(1);
        let mut points: Vec<(f64, usize)> = runs
            .iter()
            .enumerate()
            .map(|(i, run)| {
                let middle = (run.start + run.end - 1) as f64 / 2.0;
                let at = if i == 0 { frame.x.low } else { middle };
                (frame.x.at(if i == last && i > 0 { frame.x.high } else { at }), i)
            })
            .collect();
        if last == 0 {
            points.push((frame.x.at(frame.x.high), 0));
        }
        points
    }

    fn draw_bands(&self, frame: &Frame, count: usize) -> String {
        let runs = buckets(count, POINTS);
        let points = Self::points(frame, &runs);
        let mut heights = vec![0.0; runs.len()];
        let mut areas = Vec::new();
        for band in &self.bands {
            for (height, run) in heights.iter_mut().zip(&runs) {
                *height += band.mean(run);
            }
            let mut path = Path::default();
            path.to(LEFT, frame.bottom);
            for (x, i) in &points {
                path.to(*x, frame.y.at(heights[*i]));
            }
            path.to(frame.right, frame.bottom);
            path.close();
            areas.push(path.element(&format!("band f{}", band.slot)));
        }
        // Each area reaches down to zero: the tallest is painted first.
        areas.into_iter().rev().collect()
    }

    fn draw_lines(&self, frame: &Frame, count: usize) -> String {
        let runs = buckets(count, POINTS);
        let points = Self::points(frame, &runs);
        let mut out = String::new();
        if count > POINTS && self.bands.is_empty() {
            for series in &self.lines {
                let ends: Vec<_> = runs
                    .iter()
                    .map(|run| {
                        let values = series.over(run);
                        values.first().copied().zip(values.last().copied())
                    })
                    .collect();
                let mut path = Path::default();
                for part in points.split(|(_, i)| ends[*i].is_none()) {
                    let upper = part.iter().filter_map(|(x, i)| Some((*x, ends[*i]?.1)));
                    let lower = part.iter().rev().filter_map(|(x, i)| Some((*x, ends[*i]?.0)));
                    for (x, value) in upper.chain(lower) {
                        path.to(x, frame.y.at(value));
                    }
                    path.close();
                }
                out.push_str(&path.element(&format!("range f{}", series.slot)));
            }
        }
        for series in &self.lines {
            let mut path = Path::default();
            for (x, i) in &points {
                match series.median(&runs[*i]) {
                    Some(value) => path.to(*x, frame.y.at(value)),
                    None => path.lift(),
                }
            }
            let class = if self.bands.is_empty() { "" } else { " over" };
            out.push_str(&path.element(&format!("line s{}{class}", series.slot)));
        }
        out
    }

    fn draw_mark(&self, frame: &Frame) -> String {
        let Some((step, what)) = &self.mark else { return String::new() };
        let x = frame.x.at(*step as f64);
        let mut out = line((x, TOP), (x, frame.bottom), "mark");
        let value = self.lines.first().and_then(|s| s.values.get(*step).copied().and_then(sound));
        if let Some(value) = value {
            let (x, y) = (px(x), px(frame.y.at(value)));
            out.push_str(&format!("<circle class=\"mark\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>\n"));
        }
        let (class, dx) = if x > f64::midpoint(LEFT, frame.right) {
            ("end strong halo", -7.0)
        } else {
            ("strong halo", 7.0)
        };
        out.push_str(&label(x + dx, frame.bottom - 10.0, class, what));
        out
    }

    fn draw_legend(&self, frame: &Frame, count: usize) -> String {
        let mut entries: Vec<(f64, &Series)> = Vec::new();
        let last = buckets(count, POINTS).pop().unwrap_or(0..count);
        let mut height = 0.0;
        for band in &self.bands {
            let part = band.mean(&last);
            entries.push((frame.y.at(height + part / 2.0), band));
            height += part;
        }
        for series in &self.lines {
            entries.push((frame.y.at(series.median(&last).unwrap_or(0.0)), series));
        }
        entries.sort_by(|a, b| b.0.total_cmp(&a.0));
        let wanted: Vec<f64> = entries.iter().map(|(y, _)| *y).collect();
        let placed = spread(&wanted, 19.0, TOP + 10.0, frame.bottom - 6.0);
        let left = frame.right + 26.0;
        let mut out = label(WIDTH - 4.0, 13.0, "end unit", self.legend);
        for ((from, series), at) in entries.iter().zip(placed) {
            let mut path = Path::default();
            path.to(frame.right + 2.0, *from);
            path.to(frame.right + 6.0, *from);
            path.to(left - 6.0, at);
            path.to(left - 2.0, at);
            out.push_str(&path.element(&format!("leader s{}", series.slot)));
            let swatch = (left, at - 5.0, 10.0, 10.0);
            out.push_str(&rect(swatch, &format!("f{}", series.slot), ""));
            out.push_str(&label(left + 16.0, at + 4.0, "name", &cut(&series.name, 20)));
            let (first, second) = &series.legend;
            let end = WIDTH - 4.0;
            let middle = if second.is_empty() { end } else { end - 56.0 };
            out.push_str(&label(middle, at + 4.0, "end", first));
            out.push_str(&label(end, at + 4.0, "end", second));
        }
        out
    }

    /// The same legend as a list, for pages too narrow to have it beside the plot.
    fn legend_below(&self) -> String {
        let mut out = format!("<ul class=\"below\">\n<li>{}</li>\n", text(self.legend));
        for series in self.bands.iter().rev().chain(&self.lines) {
            let (first, second) = &series.legend;
            out.push_str(&format!(
                "<li><svg class=\"swatch\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect \
                 class=\"f{}\" width=\"10\" height=\"10\"/></svg> {} <span>{} {}</span></li>\n",
                series.slot,
                text(&series.name),
                text(first),
                text(second)
            ));
        }
        out + "</ul>\n"
    }

    fn tooltips(&self, frame: &Frame, count: usize) -> String {
        let mut out = String::new();
        for run in buckets(count, TIPS) {
            let (first, last) = (run.start, run.end - 1);
            let span = |from: usize, to: usize| {
                if from == to { from.to_string() } else { format!("{from}–{to}") }
            };
            let mut tip = format!("step {}", span(first, last));
            if let (Some(from), Some(to)) = (self.positions.get(first), self.positions.get(last)) {
                tip.push_str(&format!(", position {}", span(*from, *to)));
            }
            let total: f64 = self.bands.iter().map(|s| s.mean(&run)).sum();
            if self.bands.len() > 1 {
                tip.push_str(&format!("\nall {} {}", brief(total), self.unit));
            }
            for series in self.bands.iter().rev().chain(&self.lines) {
                let mean = brief(series.mean(&run));
                tip.push_str(&format!("\n{} {mean} {}", cut(&series.name, 40), self.unit));
            }
            let from = frame.x.at(first as f64 - 0.5);
            let to = frame.x.at(last as f64 + 0.5);
            out.push_str(&rect((from, TOP, to - from, self.height), "tip", &tip));
        }
        out
    }
}

/// `1 step` and its fellows for captions: which positions the steps of a chart cover.
pub(super) fn covered(positions: &[usize]) -> String {
    match (positions.first(), positions.last()) {
        (Some(first), Some(last)) if positions.len() > 1 => format!(
            "{} at positions {first} to {last}: attention covers that many tokens and one more.",
            plural(positions.len(), "step")
        ),
        (Some(first), _) => format!("1 step at position {first}."),
        _ => String::new(),
    }
}
