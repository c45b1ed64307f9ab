//! The section of a bench record: kernel and shape by kernel and shape, the fastest variant first.

use lathe_record::record::{Bench, BenchCase, Clock, Environment, StageTiming, Timing};

use super::ceilings::Bandwidths;
use super::markup::{
    Cell, NONE, Set, Table, at_least, brief, flags, maybe, number, paragraph, percent, plural,
    ratio, sorted, sound, text, warning,
};
use super::svg::{figure, px};

/// Samples drawn of a timing, evenly over the sorted ones.
const DRAWN: usize = 40;

/// Where the axis of a group ends at the latest, in times of its fastest variant.
const FURTHEST: f64 = 4.0;

/// The body of a bench record.
pub(super) fn section(bench: &Bench, environment: &Environment) -> String {
    if bench.cases.is_empty() && bench.failed.is_empty() {
        return paragraph("The record holds no case.");
    }
    let mut out = String::new();
    let bandwidths = Bandwidths::of(environment);
    let flagged = bench.cases.iter().filter(|c| !warnings(c, bandwidths).is_empty()).count();
    if flagged > 0 {
        out.push_str(&warning(&format!(
            "{} with a flag: read the last column before the number.",
            plural(flagged, "case")
        )));
    }
    for reason in &bench.failed {
        out.push_str(&warning(&format!("No result: {reason}")));
    }
    if !bench.cases.is_empty() {
        let caption = caption(bench, environment, bandwidths);
        out.push_str(&figure("Kernels", &table(bench, environment, bandwidths), &caption));
    }
    out
}

fn table(bench: &Bench, environment: &Environment, bandwidths: Bandwidths) -> String {
    let groups = grouped(&bench.cases);
    let several = groups.iter().any(|group| group.len() > 1);
    let caption = format!("{}, time of one invocation", plural(bench.cases.len(), "case"));
    let mut table = Table::new(&caption);
    for group in groups {
        table.group(heading(group[0], environment, bandwidths));
        let timings = group.iter().flat_map(|case| [&case.cold, &case.warm]);
        // A few extreme samples must not flatten the others.
        let end = timings.filter_map(|t| {
            let samples = samples(t);
            samples.get((samples.len() - 1) * 49 / 50).copied()
        });
        let best = sound(group[0].cold.median_us);
        // Nor may a variant that takes many times as long.
        let most = best.map_or(f64::INFINITY, |best| FURTHEST * best);
        let end = end.fold(0.0, f64::max).min(most);
        for case in group {
            table.row(cells(case, bandwidths, best.filter(|_| several), end));
        }
    }
    table.finish()
}

/// The cases of each kernel and shape, in the order of the record; within, by cold time.
fn grouped(cases: &[BenchCase]) -> Vec<Vec<&BenchCase>> {
    let mut groups: Vec<Vec<&BenchCase>> = Vec::new();
    for case in cases {
        let same = |group: &&mut Vec<&BenchCase>| {
            group[0].kernel == case.kernel && group[0].shape == case.shape
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    for group in &mut groups {
        group.sort_by(|a, b| a.cold.median_us.total_cmp(&b.cold.median_us));
    }
    groups
}

/// What holds for all variants of a kernel and shape: its bytes, and the least time they take.
fn heading(case: &BenchCase, environment: &Environment, bandwidths: Bandwidths) -> String {
    let mut facts = vec![format!("{} MB", at_least(case.bytes / 1e6, 2))];
    let floor = bandwidths.best().and_then(|best| ratio(case.bytes, best * 1e3));
    if let Some(floor) = floor {
        let launch = environment.ceilings.and_then(|c| sound(c.dependent_us));
        let with = launch.map_or_else(String::new, |launch| {
            format!(", {} µs with a dependent launch", brief(floor + launch))
        });
        facts.push(format!("floor {} µs{with}", brief(floor)));
    }
    facts.extend(case.golden.as_ref().map(ToString::to_string));
    format!(
        "<b>{}</b> {} <small>{}</small>",
        text(&case.kernel),
        text(&super::parameters(&case.kernel, &case.shape)),
        text(&facts.join(" · "))
    )
}

/// A row of the table; `best` is what its time is a multiple of.
fn cells(
    case: &BenchCase,
    bandwidths: Bandwidths,
    best: Option<f64>,
    end: f64,
) -> [Cell<'static>; 13] {
    let over = best.and_then(|best| ratio(case.cold.median_us, best));
    let overlapped = case.overlapped.as_ref().map(|t| t.median_us);
    let stage = |s: &StageTiming| {
        let time = s.cold.as_ref().map(|t| format!("{} µs", text(&number(t.median_us, 2))));
        format!("{} {}", text(&s.entry), time.as_deref().unwrap_or(NONE))
    };
    let stages: Vec<_> = case.stages.iter().map(stage).collect();
    [
        ("variant", Set::Name, case.variant.clone()),
        ("samples", Set::Made, strip(case, end)),
        ("cold µs", Set::Figure, number(case.cold.median_us, 2)),
        ("±", Set::Figure, percent(case.cold.noise)),
        ("× best", Set::Figure, maybe(over, 2)),
        ("warm µs", Set::Figure, number(case.warm.median_us, 2)),
        ("±", Set::Figure, percent(case.warm.noise)),
        ("overlapped µs", Set::Figure, maybe(overlapped, 2)),
        ("GB/s", Set::Figure, number(case.gb_s, 1)),
        ("% of copy", Set::Figure, percent(case.fraction_of_copy)),
        (
            "TFLOP/s",
            Set::Figure,
            case.tflop_s.map_or_else(|| NONE.to_owned(), |rate| at_least(rate, 2)),
        ),
        ("each dispatch alone", Set::Made, stages.join("<br/>")),
        ("warnings", Set::Made, flags(&warnings(case, bandwidths))),
    ]
}

/// Why not to trust a case's numbers.
fn warnings(case: &BenchCase, bandwidths: Bandwidths) -> Vec<String> {
    let mut warnings: Vec<_> = case.flags.iter().map(ToString::to_string).collect();
    if case.clock != Clock::Gpu {
        let clock = format!("{} clock", case.clock);
        if !warnings.contains(&clock) {
            warnings.push(clock);
        }
    }
    let rate = sound(case.gb_s).zip(bandwidths.ceiling());
    if rate.is_some_and(|(rate, most)| rate > most) {
        warnings.push("above the bandwidth".into());
    }
    warnings
}

fn samples(timing: &Timing) -> Vec<f64> {
    sorted(timing.samples_us.iter().copied())
}

/// Cold above warm on one axis from zero to `end`: a bar to the median, and the samples as lines.
fn strip(case: &BenchCase, end: f64) -> String {
    const WIDTH: f64 = 140.0;
    if end <= 0.0 {
        return String::new();
    }
    let at = |us: f64| (us / end).clamp(0.0, 1.0) * WIDTH;
    let mut body = String::new();
    let mut told = Vec::new();
    for (name, timing, slot, y) in [("cold", &case.cold, 0, 1.0), ("warm", &case.warm, 4, 12.0)] {
        let sorted = samples(timing);
        let (Some(median), Some(last)) = (sound(timing.median_us), sorted.len().checked_sub(1))
        else {
            continue;
        };
        let width = px(at(median));
        body.push_str(&format!(
            "<rect class=\"f{slot} soft\" y=\"{}\" width=\"{width}\" height=\"9\"/>",
            px(y)
        ));
        let mut path = String::new();
        let drawn = DRAWN.min(sorted.len());
        for i in 0..drawn {
            let sample = sorted[if drawn == 1 { 0 } else { i * last / (drawn - 1) }];
            path.push_str(&format!("M{} {}v9", px(at(sample)), px(y)));
        }
        body.push_str(&format!("<path class=\"sample s{slot}\" d=\"{path}\"/>"));
        told.push(format!(
            "{name}: median {}, {} samples from {} to {} µs",
            brief(median),
            sorted.len(),
            brief(sorted[0]),
            brief(sorted[last])
        ));
    }
    format!(
        "<svg class=\"strip\" viewBox=\"0 0 {} 22\" role=\"img\" aria-label=\"{}\"><title>{}</title>\
         {body}</svg>",
        px(WIDTH),
        text(&told.join("; ")),
        text(&told.join("; "))
    )
}

fn caption(bench: &Bench, environment: &Environment, bandwidths: Bandwidths) -> String {
    let against = match bandwidths.copy {
        Some(copy) => format!("of the copy bandwidth measured in this run, {copy:.0} GB/s"),
        None => "of a copy bandwidth that this run did not measure".to_owned(),
    };
    let mut text = format!(
        "Medians; ± is the half-width of the median's 95 % interval. Cold (upper bar, blue): \
         weights rotated past the last-level cache. Warm (lower bar, orange): the same weights \
         every time. A bar ends at the median, its lines are single samples; bars of one shape \
         share an axis from zero to at most four times the best. GB/s: the bytes an invocation must move over the cold median, \
         and what part that is {against}."
    );
    if bandwidths.best().is_some() {
        text.push_str(" Floor: those bytes at the better of the measured bandwidths");
        text.push_str(match environment.ceilings {
            Some(_) => ", and what a dispatch costs that waits for the one before.",
            None => "; what a dispatch costs was not measured in this run.",
        });
    }
    if bench.cases.iter().any(|c| c.overlapped.is_some()) {
        text.push_str(" Overlapped: invocations that need not wait for each other.");
    }
    text.push_str(" Parameters at their defaults are left out.");
    text
}
