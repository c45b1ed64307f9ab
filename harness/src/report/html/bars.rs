//! Horizontal charts: achieved bandwidth by operation, and ratios with their intervals.

use super::markup::{brief, cut, number, percent, sound};
use super::svg::{Scale, chart, label, line, px, rect};
use crate::data::Ratio;
use crate::data::record::{Ab, OpTotal};

const WIDTH: f64 = 980.0;
const ROW: f64 = 22.0;
const TOP: f64 = 30.0;

/// Achieved bandwidth of each operation against the measured copy bandwidth (10^9 bytes a
/// second), or against the fastest operation when none was measured.
pub(super) fn roofline(ops: &[OpTotal], copy_gb_s: Option<f64>) -> String {
    let copy = copy_gb_s.and_then(sound).filter(|c| *c > 0.0);
    // Bytes over milliseconds, in 10^9 a second.
    let rate = |op: &OpTotal| sound(op.bytes / op.ms / 1e6);
    let fastest = ops.iter().filter_map(rate).fold(0.0, f64::max);
    let end = copy.unwrap_or(0.0).max(fastest);
    let end = if end > 0.0 { end * 1.02 } else { 1.0 };
    let (left, right) = (172.0, 740.0);
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
        let class = if of_copy.is_some_and(|f| f > 1.0) { "f4" } else { "f0" };
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
    if let Some(copy) = copy {
        let x = scale.at(copy);
        body.push_str(&line((x, TOP - 4.0), (x, bottom), "limit"));
        body.push_str(&label(x, 16.0, "end strong", &format!("copy {copy:.0} GB/s")));
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
    let sound_values: Vec<f64> = values.filter_map(sound).collect();
    let low = sound_values.iter().copied().fold(0.99, f64::min);
    let high = sound_values.iter().copied().fold(1.01, f64::max);
    let pad = (high - low) * 0.06;
    let (left, right) = (190.0, 800.0);
    let scale = Scale::new((low - pad).max(0.0), high + pad, left, right);
    let row = 58.0;
    let bottom = TOP + rows.len() as f64 * row;
    let mut body = String::new();
    let one = scale.at(1.0);
    if one - left > 90.0 {
        body.push_str(&label(one - 10.0, 16.0, "end unit", "← B takes less time"));
    }
    if right - one > 90.0 {
        body.push_str(&label(one + 10.0, 16.0, "unit", "B takes more time →"));
    }
    body.push_str(&label(976.0, 16.0, "end unit", "ratio, 95 % interval"));
    let (ticks, decimals) = scale.ticks(scale.step(7));
    for tick in ticks {
        let x = scale.at(tick);
        body.push_str(&line((x, TOP), (x, bottom), "grid"));
        body.push_str(&label(x, bottom + 16.0, "mid", &format!("{tick:.decimals$}")));
    }
    let middle = f64::midpoint(left, right);
    body.push_str(&label(middle, bottom + 34.0, "mid unit", "time of B over time of A"));
    for (i, (name, ab)) in rows.iter().enumerate() {
        let y = TOP + i as f64 * row;
        if let Some(half) = sound(ab.indifference) {
            let (from, to) = (scale.at(1.0 - half), scale.at(1.0 + half));
            let tip = format!("counts as the same: {:.4} to {:.4}", 1.0 - half, 1.0 + half);
            body.push_str(&rect((from, y + 2.0, to - from, row - 4.0), "zone", &tip));
        }
        body.push_str(&interval(&scale, &ab.ratio, y + 20.0, "0", name, 5.0));
        body.push_str(&interval(&scale, &ab.control, y + 42.0, "8", "A against itself", 3.5));
    }
    body.push_str(&line((one, TOP - 4.0), (one, bottom), "limit"));
    let described: Vec<String> = rows
        .iter()
        .map(|(name, ab)| format!("{name}: {} {}", interval_words(&ab.ratio), ab.verdict))
        .collect();
    chart(WIDTH, bottom + 42.0, &described.join("; "), &body)
}

fn interval(scale: &Scale, r: &Ratio, y: f64, slot: &str, name: &str, radius: f64) -> String {
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
