//! The section of a decode profile.

use std::collections::BTreeMap;

use lathe_record::record::{Environment, OpTotal, Profile};

use super::chart::{Series, Steps};
use super::sections::is_above;
use crate::markup::{
    figure, made, number, paragraph, percent, plural, quantile, ratio, sound, text, tiles,
};
use crate::table::Table;

/// Operations with a colour of their own; the rest is one band.
const SHOWN: usize = 8;

/// A chart of times over positions.
const POSITIONS: Steps<'static> =
    Steps { unit: "ms a step", axis: "position", first: 0, bands: Vec::new(), lines: Vec::new() };

/// Positions below which a profile says nothing about a crossover: attention hardly grows.
const FEWEST_POSITIONS: usize = 500;

/// The body of a profile record.
pub(super) fn section(profile: &Profile, env: &Environment) -> String {
    let sums = by_op(profile);
    let parts = [
        headline(profile),
        over_steps(profile, &sums),
        crossover(profile, &sums),
        throughput(profile),
        ops_table(profile, env),
        cpu(profile),
    ];
    parts.concat()
}

/// Sums over layers: for each operation its milliseconds in each step, most time first.
fn by_op(profile: &Profile) -> Vec<(&str, Vec<f64>)> {
    let mut sums: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (i, op) in profile.ops.iter().enumerate() {
        let sum = sums.entry(&op.op).or_insert_with(|| vec![0.0; profile.steps.len()]);
        for (sum, step) in sum.iter_mut().zip(&profile.steps) {
            *sum += step.us.get(i).copied().and_then(sound).unwrap_or(0.0) / 1000.0;
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    let total = |values: &[f64]| values.iter().sum::<f64>();
    sums.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then_with(|| a.0.cmp(b.0)));
    sums
}

fn headline(profile: &Profile) -> String {
    let full = &profile.unprofiled;
    let wall = ratio(1000.0, full.decode_tok_s);
    let floor: Option<f64> = profile.by_op.iter().map(|op| op.floor_ms.and_then(sound)).sum();
    let floor = floor.filter(|ms| *ms > 0.0);
    let gpu = full.gpu_ms_per_token.and_then(sound);
    let serialised = sound(profile.serialised_ms_per_token);
    let over = |of: Option<f64>, over: Option<f64>| of.zip(over).and_then(|(x, y)| ratio(x, y));
    let times = |of, than, what: &str| {
        over(of, than).map_or_else(String::new, |times| format!("{times:.2}× {what}"))
    };
    let a_token = "ms a token";
    let wall_clock = format!("wall clock, {} ms a token", number(wall, 3));
    let busy = format!("{} of the wall clock", percent(over(gpu, wall)));
    let beyond_gpu = times(serialised, gpu, "the unprofiled GPU time");
    let mut out = tiles(&[
        ("decode, unprofiled", number(full.decode_tok_s, 1), "tok/s", wall_clock),
        ("GPU, unprofiled", number(gpu, 3), a_token, busy),
        ("bandwidth floor", number(floor, 3), a_token, times(gpu, floor, "is the GPU time")),
        ("serialised", number(serialised, 3), a_token, beyond_gpu),
    ]);
    out.push_str(&paragraph(
        "Serialised: the profiler runs every operation alone between two timestamps, so each pays \
         for start-up, drain and barriers, and nothing overlaps. The sum ranks operations and is no \
         measure of speed.",
    ));
    let facts = [
        format!("KV cache {}", profile.kv),
        plural(profile.prompt_tokens, "prompt token"),
        plural(profile.steps.len(), "profiled step"),
        plural(profile.ops.len(), "operation") + " a step",
        format!("{} a submission at full speed", plural(full.steps_per_submit, "step")),
        match profile.verified {
            Some(v) => plural(v.positions, "position") + " verified",
            None => "not verified".to_owned(),
        },
    ];
    out + &format!("<p class=\"facts\">{}</p>\n", text(&facts.join(" · ")))
}

fn over_steps(profile: &Profile, sums: &[(&str, Vec<f64>)]) -> String {
    let Some(first) = profile.steps.first() else { return String::new() };
    let all: f64 = sums.iter().flat_map(|(_, values)| values).sum();
    let band = |name: String, colour, values: Vec<f64>| {
        let total: f64 = values.iter().sum();
        let legend =
            format!("{} ms, {}", number(total, 1), percent(ratio(total, all).unwrap_or(0.0)));
        Series { name, colour, values, legend }
    };
    let (shown, rest) = sums.split_at(sums.len().min(SHOWN));
    let shown = shown.iter().enumerate();
    let mut bands: Vec<Series> =
        shown.map(|(i, (op, values))| band((*op).to_owned(), i, values.clone())).collect();
    if !rest.is_empty() {
        let sum = |i| rest.iter().filter_map(|(_, values)| values.get(i)).sum();
        let values = (0..profile.steps.len()).map(sum).collect();
        bands.push(band(format!("other ({})", rest.len()), SHOWN, values));
    }
    let chart = Steps { first: first.position, bands, ..POSITIONS };
    let caption = format!(
        "GPU time of the operations over {}, summed over layers, serialised.",
        plural(profile.steps.len(), "step")
    );
    figure("Decode time by operation", &chart.draw(), &caption)
}

/// Attention, which grows with the context, against the operation that reads most bytes, which
/// does not; with the first step at which attention takes as long.
fn crossover(profile: &Profile, sums: &[(&str, Vec<f64>)]) -> String {
    let attends = |op: &str| {
        let kernel = profile.ops.iter().find(|o| o.op == op).map_or("", |o| &o.kernel);
        kernel.starts_with("attention")
    };
    let bytes = |op: &&OpTotal| sound(op.bytes).unwrap_or(0.0);
    let others = profile.by_op.iter().filter(|op| !attends(&op.op));
    let largest = others.max_by(|a, b| bytes(a).total_cmp(&bytes(b))).map(|op| op.op.as_str());
    let product = sums.iter().find(|(op, _)| Some(*op) == largest);
    let attention = sums.iter().filter(|(op, _)| attends(op)).map(|(_, values)| values.clone());
    let attention = attention
        .reduce(|sum, values| sum.iter().zip(values).map(|(a, b)| a + b).collect::<Vec<_>>());
    let (Some(first), Some((name, product)), Some(attention)) =
        (profile.steps.first(), product, attention)
    else {
        return String::new();
    };
    if profile.steps.len() < FEWEST_POSITIONS {
        return String::new();
    }
    let crossed = attention.iter().zip(product).position(|(a, p)| a >= p && *a > 0.0);
    let finding = match crossed {
        Some(step) => format!(
            "Attention first takes as long as {name}, the operation that reads most bytes, at \
             position {}.",
            first.position + step
        ),
        None => format!(
            "No crossover: attention stays below {name}, the operation that reads most bytes."
        ),
    };
    let line = |name: &str, colour, values: &[f64]| {
        let ends = [values.first(), values.last()].map(|v| number(v.copied(), 3));
        let legend = format!("{} → {} ms", ends[0], ends[1]);
        Series { name: name.to_owned(), colour, values: values.to_vec(), legend }
    };
    let lines = vec![line("attention", 4, &attention), line(name, 0, product)];
    let chart = Steps { first: first.position, lines, ..POSITIONS };
    let caption = "Both summed over layers, serialised.";
    figure("Attention crossover", &(paragraph(&finding) + &chart.draw()), caption)
}

fn throughput(profile: &Profile) -> String {
    let steps = &profile.unprofiled.step_ms;
    if steps.is_empty() {
        return String::new();
    }
    let values: Vec<f64> = steps.iter().map(|ms| ratio(1000.0, *ms).unwrap_or(f64::NAN)).collect();
    let at = |fraction| number(quantile(&values, fraction), 1);
    let caption = format!(
        "Unprofiled, from the wall time of each step. Median {}, 5th percentile {}, 95th {}.",
        at(0.5),
        at(0.05),
        at(0.95)
    );
    let legend = format!("median {}", at(0.5));
    let lines = vec![Series { name: "tok/s".into(), colour: 0, values, legend }];
    let chart = Steps { unit: "tok/s", axis: "generated token", lines, ..POSITIONS };
    figure("Throughput by token", &chart.draw(), &caption)
}

/// Expected and measured time of each operation.
fn ops_table(profile: &Profile, env: &Environment) -> String {
    let mut table = Table::new(
        "Expected and measured",
        [
            "operation",
            "kernel",
            ">count",
            ">ms",
            ">share",
            "*",
            ">MB",
            ">GB/s",
            ">% of copy",
            ">bytes alone, ms",
            ">with launches, ms",
            ">× floor",
            ">excess ms",
            "*doubts",
        ],
    );
    for op in &profile.by_op {
        let floor = op.least_ms().and_then(sound);
        let rate = sound(op.bytes / op.ms / 1e6);
        let above = is_above(rate, env.copy_gb_s, env.read_gb_s);
        let above = above.then_some("from a cache or counted wrongly");
        table.rows.push(vec![
            op.op.clone(),
            op.kernel.clone(),
            op.count.to_string(),
            number(op.ms, 4),
            percent(op.percent / 100.0),
            made::meter(op.percent / 100.0),
            number(op.bytes / 1e6, 2),
            number(rate, 0),
            percent(rate.zip(env.copy_gb_s).and_then(|(rate, copy)| ratio(rate, copy))),
            number(op.floor_ms, 4),
            number(op.launch_floor_ms, 4),
            number(floor.and_then(|floor| ratio(op.ms, floor)), 1),
            number(floor.zip(sound(op.ms)).map(|(floor, ms)| (ms - floor).max(0.0)), 4),
            made::flags(above.as_slice()),
        ]);
    }
    table.note = "Means a token, serialised, slowest first. Floor: the bytes an operation must move \
                  at the better of the measured bandwidths, with the cost of its dependent launches \
                  where that was measured. Excess: the time beyond it, the most that a better \
                  kernel could give back. Short operations are bound by start-up, not by bandwidth."
        .into();
    table.figure()
}

fn cpu(profile: &Profile) -> String {
    let steps = &profile.steps;
    let Some(first) = steps.first() else { return String::new() };
    let series = |name: &str, colour, values: Vec<f64>| {
        let at = |fraction| number(quantile(&values, fraction), 3);
        let legend = format!("median {}, 95th percentile {}, most {}", at(0.5), at(0.95), at(1.0));
        Series { name: name.to_owned(), colour, values, legend }
    };
    let gpu = |us: &[f64]| us.iter().copied().filter_map(sound).sum::<f64>() / 1000.0;
    let chart = Steps {
        unit: "ms a step",
        axis: "position",
        first: first.position,
        bands: vec![
            series("CPU record", 0, steps.iter().map(|s| s.record_ms).collect()),
            series("CPU submit", 4, steps.iter().map(|s| s.submit_ms).collect()),
            series("CPU wait", SHOWN, steps.iter().map(|s| s.wait_ms).collect()),
        ],
        lines: vec![series("GPU", 9, steps.iter().map(|s| gpu(&s.us)).collect())],
    };
    let caption = "CPU time of each profiled step, stacked, and the sum of its operations on the \
                   GPU as a line. Where the stack stands well above the line, the step did not \
                   wait for the GPU.";
    figure("CPU and GPU", &chart.draw(), caption)
}
