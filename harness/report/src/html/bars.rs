//! Horizontal charts: achieved bandwidth by operation, and ratios with their intervals.

use lathe_record::paired::Verdict;
use lathe_record::record::{Ab, OpTotal};
use lathe_record::{Ratio, Word};

use super::ceilings::Bandwidths;
use super::markup::{brief, cut, number, percent, sound};
use super::svg::{RatioScale, Scale, chart, label, line, px, rect};

const WIDTH: f64 = 980.0;
const ROW: f64 = 22.0;
const TOP: f64 = 30.0;

/// Achieved bandwidth of each operation against the measured bandwidths, or against the fastest
/// operation when none was measured.
pub(super) fn roofline(ops: &[OpTotal], measured: Bandwidths) -> String {
    let copy = measured.copy;
    // Bytes over milliseconds, in 10^9 a second.
    let rate = |op: &OpTotal| sound(op.bytes / op.ms / 1e6);
    let fastest = ops.iter().filter_map(rate).fold(0.0, f64::max);
    let end = measured.best().unwrap_or(0.0).max(fastest);
    let end = if end > 0.0 { end * 1.02 } else { 1.0 };
    let (left, right) = (172.0, 730.0);
    let scale = Scale::new(0.0, end, left, right);
    let bottom = TOP + ops.len() as f64 * ROW;
    let mut body = label(left - 8.0, 16.0, "end unit", "operation");
    body.push_str(&label(830.0, 16.0, "end unit", "GB/s"));
    body.push_str(&label(902.0, 16.0, "end unit", "% of copy"));
    body.push_str(&label(976.0, 16.0, "end unit", "of time"));
    let (ticks, decimals) = scale.ticks(scale.step(6));
    for tick in ticks {
        let x = scale.at(tick);
        body.push_str(&line((x, TOP), (x, bottom), "grid"));
        body.push_str(&label(x, bottom + 16.0, "mid", &format!("{tick:.decimals$}")));
    }
    body.push_str(&label(right, bottom + 34.0, "end unit", "achieved GB/s"));
    for (i, op) in ops.iter().enumerate() {
        let y = TOP + i as f64 * ROW;
        let (rate, base) = (rate(op), y + 15.0);
        let of_copy = rate.zip(copy).map(|(rate, copy)| rate / copy);
        let is_above = rate.zip(measured.ceiling()).is_some_and(|(rate, most)| rate > most);
        let class = if is_above { "f4" } else { "f0" };
        let shown = rate.unwrap_or(0.0);
        let tip = format!(
            "{}: {} GB/s, {} of the copy bandwidth, {} ms a token",
            op.op,
            number(shown, 1),
            percent(of_copy.unwrap_or(f64::NAN)),
            number(op.ms, 4)
        );
        body.push_str(&rect((left, y + 4.0, right - left, ROW - 8.0), "track", ""));
        body.push_str(&rect((left, y + 4.0, scale.at(shown) - left, ROW - 8.0), class, ""));
        body.push_str(&label(left - 8.0, base, "end name", &cut(&op.op, 22)));
        let decimals = if shown < 100.0 { 1 } else { 0 };
        body.push_str(&label(830.0, base, "end", &number(rate.unwrap_or(f64::NAN), decimals)));
        body.push_str(&label(902.0, base, "end", &percent(of_copy.unwrap_or(f64::NAN))));
        body.push_str(&label(976.0, base, "end", &percent(op.percent / 100.0)));
        body.push_str(&rect((0.0, y, WIDTH, ROW), "tip", &tip));
    }
    // The lower one to the left of its line, the higher one to the right: they may stand close.
    let limits = [("copy", copy), ("read", measured.read)];
    let mut limits: Vec<_> = limits.into_iter().filter_map(|(n, r)| Some((n, r?))).collect();
    limits.sort_by(|a, b| a.1.total_cmp(&b.1));
    for (i, (name, rate)) in limits.iter().enumerate() {
        let x = scale.at(*rate);
        body.push_str(&line((x, TOP - 4.0), (x, bottom), "limit"));
        let (class, dx) = if i == 0 { ("end strong", 2.0) } else { ("strong", -2.0) };
        body.push_str(&label(x + dx, 16.0, class, &format!("{name} {rate:.0}")));
    }
    let description = format!(
        "Achieved bandwidth of {} operations, the fastest {} GB/s",
        ops.len(),
        brief(fastest)
    );
    chart(WIDTH, bottom + 42.0, &description, &body)
}

/// One or several comparisons on one axis: for each the ratio of times B/A with its interval,
/// A against itself below it, and the zone that counts as the same.
pub(super) fn ratio_strip(rows: &[(String, &Ab)]) -> String {
    let ends = |r: &Ratio| [r.low, r.median, r.high];
    let values = rows.iter().flat_map(|(_, ab)| {
        let zone = [1.0 - ab.indifference, 1.0 + ab.indifference];
        ends(&ab.ratio).into_iter().chain(ends(&ab.control)).chain(zone)
    });
    let (left, right) = (190.0, 800.0);
    let scale = RatioScale::over(values.filter_map(sound), left, right);
    let row = 58.0;
    let bottom = TOP + rows.len() as f64 * row;
    let mut body = String::new();
    let one = scale.at(1.0);
    body.push_str(&label(one - 10.0, 16.0, "end unit", "← B takes less time"));
    body.push_str(&label(one + 10.0, 16.0, "unit", "B takes more time →"));
    body.push_str(&label(976.0, 16.0, "end unit", "ratio and its interval"));
    let (ticks, decimals) = scale.ticks();
    for tick in ticks {
        let x = scale.at(tick);
        body.push_str(&line((x, TOP), (x, bottom), "grid"));
        body.push_str(&label(x, bottom + 16.0, "mid", &format!("{tick:.decimals$}")));
    }
    let middle = f64::midpoint(left, right);
    let unit = "time of B over time of A, logarithmic";
    body.push_str(&label(middle, bottom + 34.0, "mid unit", unit));
    for (i, (name, ab)) in rows.iter().enumerate() {
        let y = TOP + i as f64 * row;
        if let Some(half) = sound(ab.indifference) {
            let (from, to) = (scale.at(1.0 - half), scale.at(1.0 + half));
            let tip = format!("counts as the same: {:.4} to {:.4}", 1.0 - half, 1.0 + half);
            body.push_str(&rect((from, y + 2.0, to - from, row - 4.0), "zone", &tip));
        }
        let class = verdict_class(&ab.verdict);
        body.push_str(&interval(&scale, &ab.ratio, y + 20.0, class, name, 5.0));
        body.push_str(&interval(&scale, &ab.control, y + 42.0, "8", "A against itself", 3.5));
    }
    body.push_str(&line((one, TOP - 4.0), (one, bottom), "limit"));
    let described: Vec<String> = rows
        .iter()
        .map(|(name, ab)| format!("{name}: {} {}", interval_words(&ab.ratio), ab.verdict))
        .collect();
    chart(WIDTH, bottom + 42.0, &described.join("; "), &body)
}

/// The class that a verdict's colour has.
pub(super) fn verdict_class(verdict: &Word<Verdict>) -> &'static str {
    match verdict {
        Word::Known(Verdict::Faster) => "faster",
        Word::Known(Verdict::Slower) => "slower",
        Word::Known(Verdict::Same) => "same",
        Word::Known(Verdict::Inconclusive) | Word::Other(_) => "unclear",
    }
}

fn interval(scale: &RatioScale, r: &Ratio, y: f64, slot: &str, name: &str, radius: f64) -> String {
    let mut out = label(182.0, y + 4.0, "end name", &cut(name, 25));
    out.push_str(&label(976.0, y + 4.0, "end", &interval_words(r)));
    if let (Some(low), Some(high)) = (sound(r.low), sound(r.high)) {
        let class = format!("whisker s{slot}");
        for (from, to) in [
            ((scale.at(low), y), (scale.at(high), y)),
            ((scale.at(low), y - 5.0), (scale.at(low), y + 5.0)),
            ((scale.at(high), y - 5.0), (scale.at(high), y + 5.0)),
        ] {
            out.push_str(&line(from, to, &class));
        }
    }
    if let Some(median) = sound(r.median) {
        let (x, y, radius) = (px(scale.at(median)), px(y), px(radius));
        out.push_str(&format!(
            "<circle class=\"dot f{slot}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n"
        ));
    }
    out
}

fn interval_words(r: &Ratio) -> String {
    format!("{} [{}, {}]", number(r.median, 4), number(r.low, 4), number(r.high, 4))
}
