//! The section of a profile record.

use std::collections::BTreeMap;

use lathe_record::record::{Environment, FIRST_PREFERENCE, OpTotal, Profile, Selected};

use super::bars::roofline;
use super::ceilings::Bandwidths;
use super::crossover;
use super::markup::{
    NONE, Set, Table, at_least, maybe, meter, number, paragraph, percent, plural, quantile, ratio,
    sorted, sound, tiles, two,
};
use super::steps::{Series, StepChart, covered};
use super::svg::{Colours, figure};

/// Operations with a colour of their own; what is left is drawn as one.
pub(super) const SHOWN: usize = 8;

/// Sums over layers: for each operation its time in each step, milliseconds, most time first.
pub(super) fn by_op(profile: &Profile) -> Vec<(String, Vec<f64>)> {
    let steps = profile.steps.len();
    let mut sums: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (i, op) in profile.ops.iter().enumerate() {
        let sum = sums.entry(&op.op).or_insert_with(|| vec![0.0; steps]);
        for (sum, step) in sum.iter_mut().zip(&profile.steps) {
            *sum += step.us.get(i).copied().and_then(sound).unwrap_or(0.0) / 1000.0;
        }
    }
    let total = |values: &[f64]| values.iter().sum::<f64>();
    let mut sums: Vec<(String, Vec<f64>)> =
        sums.into_iter().map(|(op, values)| (op.to_owned(), values)).collect();
    sums.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then_with(|| a.0.cmp(&b.0)));
    sums
}

/// The body of a profile record.
pub(super) fn section(profile: &Profile, env: &Environment, colours: &mut Colours) -> String {
    let positions: Vec<usize> = profile.steps.iter().map(|s| s.position).collect();
    let sums = by_op(profile);
    let shown = &sums[..sums.len().min(SHOWN)];
    let slots = slots(shown, colours);
    let mut out = headline(profile);
    out.push_str(&over_steps(profile, &sums, &positions, &slots));
    out.push_str(&crossover::figure_of(profile, &positions, &slots));
    out.push_str(&throughput(profile));
    out.push_str(&ops_table(profile));
    out.push_str(&rooflines(profile, env));
    out.push_str(&cpu(profile, &positions));
    out.push_str(&selection(&profile.selected));
    out
}

fn headline(profile: &Profile) -> String {
    let full = &profile.unprofiled;
    let wall = ratio(1000.0, full.decode_tok_s);
    let sum = |of: fn(&OpTotal) -> Option<f64>| -> Option<f64> {
        let all: Option<f64> = profile.by_op.iter().map(|op| of(op).and_then(sound)).sum();
        all.filter(|ms| *ms > 0.0)
    };
    let (floor, launches) = (sum(|op| op.floor_ms), sum(|op| op.launch_floor_ms));
    let gpu = full.gpu_ms_per_token.and_then(sound);
    let busy = gpu.zip(wall).map(|(gpu, wall)| gpu / wall);
    let over = gpu.zip(floor).map(|(gpu, floor)| gpu / floor);
    let serialised = sound(profile.serialised_ms_per_token);
    let beyond = serialised.zip(gpu).and_then(|(s, gpu)| ratio(s, gpu));
    let mut out = tiles(&[
        (
            "decode, unprofiled",
            number(full.decode_tok_s, if full.decode_tok_s < 100.0 { 1 } else { 0 }),
            "tok/s",
            format!("wall clock, {} ms a token", maybe(wall, 3)),
        ),
        (
            "GPU, unprofiled",
            maybe(gpu, 3),
            "ms a token",
            busy.map_or_else(
                || "no GPU time was taken".to_owned(),
                |busy| format!("{} of the wall clock", percent(busy)),
            ),
        ),
        (
            "bandwidth floor",
            maybe(floor, 3),
            "ms a token",
            match (over, launches) {
                (None, _) => "all bytes at the measured bandwidth".to_owned(),
                (Some(over), None) => format!("GPU time is {over:.2}× the floor"),
                (Some(over), Some(ms)) => {
                    format!("GPU time is {over:.2}× the floor; {ms:.3} ms with every launch")
                }
            },
        ),
        (
            "serialised",
            number(profile.serialised_ms_per_token, 3),
            "ms a token",
            beyond.map_or_else(
                || "sum of all operations".to_owned(),
                |beyond| format!("sum of all operations, {beyond:.2}× unprofiled"),
            ),
        ),
    ]);
    let sum = if beyond.is_none_or(|beyond| beyond > 1.0) {
        "That sum exceeds a real step; it"
    } else {
        "Here that sum does not exceed a real step. It"
    };
    out.push_str(&paragraph(&format!(
        "Serialised: for the profile every operation runs alone in a pass of its own between two \
         timestamps, so start-up, drain and barriers are paid by each and nothing overlaps. {sum} \
         ranks operations and is no measure of speed."
    )));
    let mut facts = vec![
        format!("KV cache {}", profile.kv),
        plural(profile.prompt_tokens, "prompt token"),
        plural(profile.steps.len(), "profiled step"),
        plural(profile.ops.len(), "operation") + " a step",
    ];
    facts.push(format!("{} a submission at full speed", plural(full.steps_per_submit, "step")));
    facts.push(match profile.verified {
        Some(v) => plural(v.positions, "position") + " verified",
        None => "not verified".to_owned(),
    });
    out.push_str(&format!("<p class=\"facts\">{}</p>\n", super::markup::text(&facts.join(" · "))));
    out
}

/// A colour for each of `ops`, the one an earlier section gave it where no other has it here.
fn slots(ops: &[(String, Vec<f64>)], colours: &mut Colours) -> Colours {
    let mut here = Colours::new();
    for (op, _) in ops {
        if let Some(slot) = colours.get(op).filter(|slot| here.values().all(|s| s != *slot)) {
            here.insert(op.clone(), *slot);
        }
    }
    for (op, _) in ops {
        if !here.contains_key(op) {
            let free = (0..SHOWN).find(|slot| here.values().all(|s| s != slot));
            here.insert(op.clone(), free.unwrap_or(SHOWN));
        }
    }
    for (op, slot) in &here {
        colours.entry(op.clone()).or_insert(*slot);
    }
    here
}

fn over_steps(
    profile: &Profile,
    sums: &[(String, Vec<f64>)],
    positions: &[usize],
    slots: &Colours,
) -> String {
    if positions.is_empty() {
        return String::new();
    }
    let all: f64 = sums.iter().flat_map(|(_, values)| values).sum();
    let legend = |values: &[f64]| {
        let total: f64 = values.iter().sum();
        let share = percent(ratio(total, all).unwrap_or(0.0));
        (format!("{} ms", number(total, 1)), share)
    };
    let (shown, rest) = sums.split_at(sums.len().min(SHOWN));
    let mut bands: Vec<Series> = shown
        .iter()
        .map(|(op, values)| Series {
            name: op.clone(),
            slot: slots.get(op).copied().unwrap_or(SHOWN),
            legend: legend(values),
            values: values.clone(),
        })
        .collect();
    if !rest.is_empty() {
        let values: Vec<f64> = (0..profile.steps.len())
            .map(|i| rest.iter().filter_map(|(_, values)| values.get(i)).sum())
            .collect();
        let name = format!("other ({})", rest.len());
        bands.push(Series { name, slot: SHOWN, legend: legend(&values), values });
    }
    let head = format!("total over {}", plural(profile.steps.len(), "step"));
    let (chart, note) = StepChart {
        description: format!("GPU time of each operation over {} steps, stacked", positions.len()),
        unit: "ms a step",
        step: "profiled step",
        positions,
        bands,
        lines: Vec::new(),
        legend: &head,
        mark: None,
        from_zero: true,
        height: 300.0,
    }
    .draw();
    let caption = format!(
        "GPU time of the operations, summed over layers, serialised. {} {note}",
        covered(positions)
    );
    figure("Decode time by operation", &chart, caption.trim())
}

fn throughput(profile: &Profile) -> String {
    let steps = &profile.unprofiled.step_ms;
    if steps.is_empty() {
        return String::new();
    }
    let values: Vec<f64> = steps.iter().map(|ms| ratio(1000.0, *ms).unwrap_or(f64::NAN)).collect();
    let all = sorted(values.iter().copied());
    let at = |fraction| maybe(quantile(&all, fraction), 1);
    let spread = format!("Median {}, 5th percentile {}, 95th {}.", at(0.5), at(0.05), at(0.95));
    let (chart, note) = StepChart {
        description: format!("Tokens a second for each of {} tokens. {spread}", values.len()),
        unit: "tok/s",
        step: "generated token",
        positions: &[],
        bands: Vec::new(),
        lines: vec![Series {
            name: "tok/s".into(),
            slot: 0,
            values,
            legend: (at(0.5), String::new()),
        }],
        legend: "median",
        mark: None,
        from_zero: false,
        height: 200.0,
    }
    .draw();
    let caption = format!("Un-profiled, from the wall time of each step. {spread} {note}");
    figure("Throughput by token", &chart, caption.trim())
}

fn ops_table(profile: &Profile) -> String {
    if profile.by_op.is_empty() {
        return String::new();
    }
    let mut table = Table::new("Means a token, serialised, slowest first");
    for op in &profile.by_op {
        let floor = floor_ms(op);
        let over = floor.and_then(|floor| ratio(op.ms, floor));
        let over = over.map_or_else(|| NONE.to_owned(), |over| format!("{over:.1} ×"));
        let excess = floor.zip(sound(op.ms)).map(|(floor, ms)| (ms - floor).max(0.0));
        let shown = |ms: Option<f64>| ms.map_or_else(|| NONE.to_owned(), |ms| at_least(ms, 4));
        table.row([
            ("operation", Set::Made, two(&op.op, &op.kernel)),
            ("count", Set::Figure, op.count.to_string()),
            ("ms", Set::Figure, number(op.ms, 4)),
            ("share", Set::Figure, percent(op.percent / 100.0)),
            ("", Set::Made, meter(op.percent / 100.0)),
            ("MB", Set::Figure, at_least(op.bytes / 1e6, 2)),
            ("bytes alone, ms", Set::Figure, shown(op.floor_ms)),
            ("with launches, ms", Set::Figure, shown(op.launch_floor_ms)),
            ("over floor", Set::Figure, over),
            ("excess ms", Set::Figure, maybe(excess, 4)),
        ]);
    }
    let caption = if profile.by_op.iter().all(|op| floor_ms(op).is_none()) {
        ""
    } else if profile.by_op.iter().any(|op| op.launch_floor_ms.is_some()) {
        "Floor: the bytes an operation must move, at the better of the measured bandwidths, and \
         what its dispatches cost, each of which waits for the one before. Excess: what it takes \
         beyond that, the most that a better kernel could give back."
    } else {
        "Floor: the bytes an operation must move, at the better of the measured bandwidths. What a \
         dispatch costs was not measured in this run, so operations whose bytes take less than a \
         microsecond have none. Excess: what an operation takes beyond its floor, the most that a \
         better kernel could give back."
    };
    figure("Expected and measured", &table.finish(), caption)
}

/// How long an operation takes at least. Without the launches, bytes that take less than
/// [`LAUNCH_US`] are none: the launch is what such an operation waits for.
fn floor_ms(op: &OpTotal) -> Option<f64> {
    /// What a launch costs at least on any device of ours, microseconds.
    const LAUNCH_US: f64 = 1.0;
    let least = op.count as f64 * LAUNCH_US / 1000.0;
    let bytes = op.floor_ms.and_then(sound).filter(|ms| *ms >= least);
    op.launch_floor_ms.and_then(sound).or(bytes)
}

fn rooflines(profile: &Profile, env: &Environment) -> String {
    if profile.by_op.is_empty() {
        return String::new();
    }
    let measured = Bandwidths::of(env);
    let mut caption = String::from("Bytes an operation must move over its serialised time");
    caption.push_str(match (measured.copy, measured.read) {
        (None, None) => {
            ". No bandwidth was measured, so the bars compare the operations with each other only."
        }
        (Some(_), None) => {
            ", against the copy bandwidth measured on this adapter. Reading alone, which may be \
             faster, was not measured in this run."
        }
        _ => {
            ", against the bandwidths measured on this adapter: a kernel that mostly reads can \
             come up to the higher one."
        }
    });
    caption.push_str(" Short operations are bound by start-up, not by bandwidth.");
    let most = measured.ceiling();
    let rate = |op: &OpTotal| sound(op.bytes / op.ms / 1e6);
    if profile.by_op.iter().filter_map(rate).any(|rate| most.is_some_and(|most| rate > most)) {
        caption.push_str(
            " A bar of the other colour lies above what memory can give: it reads from a cache, or \
             its bytes are counted wrongly.",
        );
    }
    figure("Roofline", &roofline(&profile.by_op, measured), &caption)
}

fn cpu(profile: &Profile, positions: &[usize]) -> String {
    let steps = &profile.steps;
    if steps.is_empty() {
        return String::new();
    }
    let gpu: Vec<f64> = steps
        .iter()
        .map(|s| s.us.iter().copied().filter_map(sound).sum::<f64>() / 1000.0)
        .collect();
    let parts = [
        ("record", 0, steps.iter().map(|s| s.record_ms).collect::<Vec<_>>()),
        ("submit", 4, steps.iter().map(|s| s.submit_ms).collect()),
        ("wait", SHOWN, steps.iter().map(|s| s.wait_ms).collect()),
    ];
    let median = |values: &[f64]| {
        let values = sorted(values.iter().copied());
        (format!("{} ms", maybe(quantile(&values, 0.5), 3)), String::new())
    };
    let mut table = Table::new("Milliseconds a profiled step");
    let named = parts.iter().map(|(name, _, values)| (format!("CPU {name}"), values));
    for (name, values) in named.chain([("GPU, operations".to_owned(), &gpu)]) {
        let values = sorted(values.iter().copied());
        let at = |fraction| maybe(quantile(&values, fraction), 3);
        table.row([
            ("", Set::Name, name),
            ("median", Set::Figure, at(0.5)),
            ("95th percentile", Set::Figure, at(0.95)),
            ("largest", Set::Figure, at(1.0)),
        ]);
    }
    let gpu = Series { name: "GPU".into(), slot: SHOWN + 1, legend: median(&gpu), values: gpu };
    let bands = parts.map(|(name, slot, values)| {
        let legend = median(&values);
        Series { name: format!("CPU {name}"), slot, values, legend }
    });
    let (chart, note) = StepChart {
        description: "CPU time to record, submit and wait, and GPU time, for each step".into(),
        unit: "ms a step",
        step: "profiled step",
        positions,
        bands: bands.into(),
        lines: vec![gpu],
        legend: "median",
        mark: None,
        from_zero: true,
        height: 190.0,
    }
    .draw();
    let caption = format!(
        "What the CPU spent on each profiled step, stacked, and the sum of its operations on the \
         GPU, as a line. Where the stack stands well above the line, the GPU was not what the step \
         waited for. {note}"
    );
    figure("CPU and GPU", &(chart + &table.finish()), caption.trim())
}

/// The selection log; lines that are the same for many layers appear once, with their number.
fn selection(lines: &[Selected]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut unique: Vec<(&Selected, usize)> = Vec::new();
    let mut seen: BTreeMap<[&str; 5], usize> = BTreeMap::new();
    for line in lines {
        let key = [&*line.op, &*line.kernel, &*line.variant, &*line.shape, &*line.why];
        let at = *seen.entry(key).or_insert(unique.len());
        match unique.get_mut(at) {
            Some((_, count)) => *count += 1,
            None => unique.push((line, 1)),
        }
    }
    let exceptions = unique.iter().filter(|(line, _)| is_exception(line)).count();
    let sentence = match exceptions {
        0 => "Every operation has the variant that its kernel prefers for this shape.".to_owned(),
        n => format!(
            "{n} of {} have another variant than their kernel prefers, or constants that were \
             tuned; all others have what is preferred for their shape.",
            plural(unique.len(), "operation")
        ),
    };
    let mut html = paragraph(&sentence);
    if exceptions > 0 {
        html.push_str(&selected(unique.iter().filter(|(line, _)| is_exception(line)), true));
    }
    html.push_str("<details>\n<summary>Every operation with its variant and shape</summary>\n");
    html.push_str(&selected(unique.iter(), false));
    html.push_str("</details>\n");
    figure("Selection", &html, "")
}

/// Whether a choice is another than the kernel's first preference.
fn is_exception(line: &Selected) -> bool {
    let why = line.why.strip_suffix(IN_A_RUN).unwrap_or(&line.why);
    line.tuned || why != FIRST_PREFERENCE
}

/// Appended to the reason where a whole layer is one dispatch.
const IN_A_RUN: &str = "; a phase of its layer's run";

fn selected<'a>(lines: impl Iterator<Item = &'a (&'a Selected, usize)>, reasons: bool) -> String {
    let mut table = Table::new(if reasons { "Exceptions" } else { "What was selected" });
    for (line, count) in lines {
        let times = if *count > 1 { format!(" ×{count}") } else { String::new() };
        table.row([
            ("operation", Set::Name, line.op.clone() + &times),
            ("kernel and variant", Set::Made, two(&line.variant, &line.kernel)),
            ("shape", Set::Shape, super::parameters(&line.kernel, &line.shape)),
            ("reason", Set::Prose, if reasons { line.why.clone() } else { String::new() }),
        ]);
    }
    table.finish()
}
