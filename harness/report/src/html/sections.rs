//! Sections of A/B runs, benchmarks and whole generations.

use lathe_record::record::{Ab, Bench, BenchCase, Clock, Environment, GenerationTests, Suite};

use super::chart::{Bar, bars};
use super::markup::{
    Set, Table, at_least, figure, made, maybe, number, paragraph, percent, plural, ratio, sound,
    text, tiles, warning,
};
use super::parameters;
use crate::generation::{self, Grid};

/// Class of a verdict's colour.
fn verdict_class(ab: &Ab) -> &'static str {
    match ab.verdict.to_string().as_str() {
        "FASTER" => "faster",
        "SLOWER" => "slower",
        "SAME" => "same",
        _ => "unclear",
    }
}

/// The body of an A/B record.
pub(super) fn ab(ab: &Ab) -> String {
    let mut out = format!(
        "<p class=\"verdict {}\"><strong>{}</strong> {}</p>\n",
        verdict_class(ab),
        text(&ab.verdict.to_string()),
        text(&in_words(ab))
    );
    let flags: Vec<_> = ab.flags.iter().map(ToString::to_string).collect();
    if !flags.is_empty() {
        out.push_str(&format!("<p>{}</p>\n", made::flags(&flags)));
    }
    let interval = format!("{} to {}", number(ab.ratio.low, 4), number(ab.ratio.high, 4));
    out.push_str(&tiles(&[
        ("A", number(ab.a_us, 2), "µs", ab.a.clone()),
        ("B", number(ab.b_us, 2), "µs", ab.b.clone()),
        (
            "time of B over A",
            number(ab.ratio.median, 4),
            "",
            format!("{} {interval}", ab.interval()),
        ),
        ("same within", percent(ab.indifference), "", "half-width of the zone around 1".into()),
    ]));
    let caption = format!("{} of A and B in turns. ", plural(ab.blocks, "block"));
    out + &ratios("Ratio of times", &[("B against A".into(), ab)], &caption)
}

/// Ratios of comparisons on one axis, each above A against itself.
pub(super) fn ratios(heading: &str, rows: &[(String, &Ab)], caption: &str) -> String {
    let change = |ratio: f64| 100.0 * (ratio - 1.0);
    let bar = |name: &str, r: &lathe_record::Ratio, colour| Bar {
        name: name.to_owned(),
        from: change(r.low),
        to: change(r.high),
        mark: Some(change(r.median)),
        colour,
        label: format!("{} [{}, {}]", number(r.median, 4), number(r.low, 4), number(r.high, 4)),
    };
    let rows_of = |(name, ab): &(String, &Ab)| {
        [bar(name, &ab.ratio, verdict_class(ab)), bar("A against itself", &ab.control, "f8")]
    };
    let mut limits = vec![("A".to_owned(), 0.0)];
    if let [(_, ab)] = rows {
        let zone = change(1.0 + ab.indifference);
        limits.extend([(String::new(), -zone), (String::new(), zone)]);
    }
    let drawn: Vec<Bar> = rows.iter().flat_map(rows_of).collect();
    let caption = format!(
        "{caption}Bar: interval; mark: median. Grey: A against itself in the same run, which is \
         the difference that this machine shows where there is none. A verdict needs the whole \
         interval on one side of the zone that counts as the same, or inside it."
    );
    figure(heading, &bars("time of B beyond that of A, %", &drawn, &limits), &caption)
}

/// The verdict as a sentence.
fn in_words(ab: &Ab) -> String {
    let zone = format!("the zone of ±{} around 1", percent(ab.indifference));
    let change = percent((ab.ratio.median - 1.0).abs());
    let Ab { a, b, .. } = ab;
    match verdict_class(ab) {
        "faster" => {
            let speed = maybe(ratio(1.0, ab.ratio.median), 2);
            format!(
                "{b} takes {change} less time than {a} ({speed}× its speed): the interval is below \
                 {zone}."
            )
        }
        "slower" => format!("{b} takes {change} more time than {a}: the interval is above {zone}."),
        "same" => format!("{b} and {a} take the same time: the interval is inside {zone}."),
        _ => format!(
            "This run cannot tell {b} from {a}: the interval crosses an end of {zone}. More blocks \
             or a quieter machine may."
        ),
    }
}

/// The body of a bench record: groups of one kernel and shape, the fastest variant first.
pub(super) fn bench(bench: &Bench, environment: &Environment) -> String {
    if bench.cases.is_empty() && bench.failed.is_empty() {
        return paragraph("The record holds no case.");
    }
    let failed = bench.failed.iter().map(|reason| warning(&format!("No result: {reason}")));
    let mut out: String = failed.collect();
    let flagged = bench.cases.iter().filter(|c| !doubts(c, environment).is_empty()).count();
    if flagged > 0 {
        out.push_str(&warning(&format!("{} with a doubt.", plural(flagged, "case"))));
    }
    let mut groups: Vec<Vec<&BenchCase>> = Vec::new();
    for case in &bench.cases {
        let same =
            |g: &&mut Vec<&BenchCase>| (&g[0].kernel, &g[0].shape) == (&case.kernel, &case.shape);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    let mut table = Table::new("Time of one invocation");
    for group in &mut groups {
        group.sort_by(|a, b| a.cold.median_us.total_cmp(&b.cold.median_us));
        let first = group[0];
        table.group(format!(
            "<b>{}</b> {} <small>{} MB</small>",
            text(&first.kernel),
            text(&parameters(&first.kernel, &first.shape)),
            at_least(first.bytes / 1e6, 2)
        ));
        for case in group.iter() {
            let fraction = first.cold.median_us / case.cold.median_us;
            table.row([
                ("variant", Set::Name, case.variant.clone()),
                ("speed", Set::Made, made::meter(fraction)),
                ("cold µs", Set::Figure, number(case.cold.median_us, 2)),
                ("±", Set::Figure, percent(case.cold.noise)),
                ("× best", Set::Figure, maybe(ratio(1.0, fraction), 2)),
                ("warm µs", Set::Figure, number(case.warm.median_us, 2)),
                (
                    "overlapped µs",
                    Set::Figure,
                    maybe(case.overlapped.as_ref().map(|t| t.median_us), 2),
                ),
                ("GB/s", Set::Figure, number(case.gb_s, 1)),
                ("% of copy", Set::Figure, percent(case.fraction_of_copy)),
                ("TFLOP/s", Set::Figure, at_least(case.flops / case.cold.median_us * 1e-6, 2)),
                ("doubts", Set::Made, made::flags(&doubts(case, environment))),
            ]);
        }
    }
    let copy = environment.copy_gb_s.and_then(sound);
    let caption = format!(
        "Medians; ± is the half-width of the median's 95 % interval. Cold: weights rotated past the \
         last-level cache. Warm: the same weights every time. Overlapped: invocations that need not \
         wait for each other. GB/s: the bytes an invocation must move over the cold median, beside \
         the copy bandwidth of this run{}. Parameters at their defaults are left out.",
        copy.map_or(String::new(), |copy| format!(", {copy:.0} GB/s"))
    );
    match bench.cases.is_empty() {
        true => out,
        false => out + &figure("Kernels", &table.finish(), &caption),
    }
}

/// The rate above which bytes cannot have come from memory. Reading alone is faster than copying;
/// where it was not measured, a kernel that reads is allowed more.
pub(super) fn ceiling(env: &Environment) -> Option<f64> {
    let [copy, read] = [env.copy_gb_s, env.read_gb_s].map(|rate| rate.and_then(sound));
    let margin = if read.is_some() { 1.02 } else { 1.1 };
    copy.into_iter().chain(read).reduce(f64::max).map(|best| best * margin)
}

/// Reasons to doubt a case's numbers.
fn doubts(case: &BenchCase, environment: &Environment) -> Vec<String> {
    let mut doubts: Vec<_> = case.flags.iter().map(ToString::to_string).collect();
    let clock = format!("{} clock", case.clock);
    if case.clock != Clock::Gpu && !doubts.contains(&clock) {
        doubts.push(clock);
    }
    if sound(case.gb_s).zip(ceiling(environment)).is_some_and(|(rate, most)| rate > most) {
        doubts.push("above the bandwidth".into());
    }
    doubts
}

/// The body of a record of `bench decode`.
pub(super) fn tests(run: &GenerationTests, env: &Environment) -> String {
    if run.tests.is_empty() {
        return paragraph("The record holds no test.");
    }
    let unverified = run.tests.iter().filter(|test| test.verified.is_none()).count();
    unchecked(unverified) + &grid(&generation::tests(run, env))
}

/// The body of a suite.
pub(super) fn suite(run: &Suite) -> String {
    if run.models.is_empty() {
        return paragraph("The record holds no model.");
    }
    let configs = run.models.iter().flat_map(|model| model.configs.values());
    let unverified = configs.filter(|config| config.verified.is_none()).count();
    let grids: String = generation::suite(run).iter().map(grid).collect();
    unchecked(unverified) + &paragraph(&generation::suite_note(run)) + &grids
}

fn unchecked(count: usize) -> String {
    match count {
        0 => String::new(),
        n => warning(&format!("Not verified: the outputs of {n} figures below were not checked.")),
    }
}

fn grid(grid: &Grid) -> String {
    let set = |right| if right { Set::Figure } else { Set::Name };
    let mut table = Table::new("");
    for row in &grid.rows {
        let cells = grid.columns().zip(row);
        let cells = cells.map(|((name, right), cell)| (name, set(right), cell.clone()));
        table.row(cells.collect::<Vec<_>>());
    }
    figure(&grid.title, &table.finish(), &grid.note)
}
