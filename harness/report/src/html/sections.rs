//! Sections of A/B runs and whole generations, and the table of any run's results.

use lathe_record::Ratio;
use lathe_record::paired::Verdict;
use lathe_record::record::{Ab, Environment, GenerationTests, Suite};
use lathe_record::row::{Kind, Row, Run};

use super::chart::{Bar, bars};
use super::parameters;
use crate::generation;
use crate::markup::{
    figure, made, number, paragraph, percent, plural, ratio, sound, text, tiles, warning,
};
use crate::table::Table;

/// Class of a verdict's colour.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Same => "same",
        Verdict::Inconclusive => "unclear",
    }
}

/// The body of an A/B record.
pub(super) fn ab(ab: &Ab) -> String {
    let mut out = format!(
        "<p class=\"verdict {}\"><strong>{}</strong> {}</p>\n",
        class(ab.found.verdict),
        ab.found.verdict,
        text(&in_words(ab))
    );
    if !ab.flags.is_empty() {
        out.push_str(&format!("<p>{}</p>\n", made::flags(&ab.flags)));
    }
    let interval =
        format!("{} to {}", number(ab.found.ratio.low, 4), number(ab.found.ratio.high, 4));
    let interval = format!("{} {interval}", ab.interval());
    out.push_str(&tiles(&[
        ("A", number(ab.found.a_us, 2), "µs", ab.a.clone()),
        ("B", number(ab.found.b_us, 2), "µs", ab.b.clone()),
        ("time of B over A", number(ab.found.ratio.median, 4), "", interval),
        (
            "same within",
            percent(ab.found.indifference),
            "",
            "half-width of the zone around 1".into(),
        ),
    ]));
    let caption = format!("{} of A and B in turns. ", plural(ab.blocks, "block"));
    out + &ratios("Ratio of times", &[("B against A".into(), ab)], &caption)
}

/// Ratios of comparisons on one axis, each above A against itself.
pub(super) fn ratios(heading: &str, rows: &[(String, &Ab)], caption: &str) -> String {
    let change = |ratio: f64| 100.0 * (ratio - 1.0);
    let bar = |name: &str, r: &Ratio, colour| Bar {
        name: name.to_owned(),
        ends: [change(r.low), change(r.high)],
        mark: change(r.median),
        colour,
        label: format!("{} [{}, {}]", number(r.median, 4), number(r.low, 4), number(r.high, 4)),
    };
    let bars_of = |(name, ab): &(String, &Ab)| {
        [
            bar(name, &ab.found.ratio, class(ab.found.verdict)),
            bar("A against itself", &ab.found.control, "f8"),
        ]
    };
    let mut limits = vec![("A", 0.0)];
    if let [(_, ab)] = rows {
        let zone = change(1.0 + ab.found.indifference);
        limits.extend([("", -zone), ("", zone)]);
    }
    let drawn: Vec<Bar> = rows.iter().flat_map(bars_of).collect();
    let caption = format!(
        "{caption}Bar: interval; mark: median. Grey: A against itself in the same run, which is \
         the difference that this machine shows where there is none. A verdict needs the whole \
         interval on one side of the zone that counts as the same, or inside it."
    );
    figure(heading, &bars("time of B beyond that of A, %", &drawn, &limits), &caption)
}

/// The verdict as a sentence.
fn in_words(ab: &Ab) -> String {
    let zone = format!("the zone of ±{} around 1", percent(ab.found.indifference));
    let change = percent((ab.found.ratio.median - 1.0).abs());
    let Ab { a, b, .. } = ab;
    match ab.found.verdict {
        Verdict::Faster => {
            let speed = number(ratio(1.0, ab.found.ratio.median), 2);
            format!(
                "{b} takes {change} less time than {a} ({speed}× its speed): the interval is below \
                 {zone}."
            )
        }
        Verdict::Slower => {
            format!("{b} takes {change} more time than {a}: the interval is above {zone}.")
        }
        Verdict::Same => format!("{b} and {a} take the same time: the interval is inside {zone}."),
        Verdict::Inconclusive => format!(
            "This run cannot tell {b} from {a}: the interval crosses an end of {zone}. More blocks \
             or a quieter machine may."
        ),
    }
}

/// The rows of a run in groups of one subject and shape, the fastest variant of a kernel first.
pub(super) fn results(run: &Run) -> String {
    let (failed, rows): (Vec<&Row>, Vec<&Row>) =
        run.rows.iter().partition(|row| row.kind == Kind::Failed);
    let mut out: String = failed
        .iter()
        .map(|row| warning(&format!("No result: {}: {}", row.key(), row.flags)))
        .collect();
    if run.rows.is_empty() {
        return paragraph("The record holds no result.");
    }
    let doubtful = rows.iter().filter(|row| !doubts(row).is_empty()).count();
    if doubtful > 0 {
        out.push_str(&warning(&format!("{} with a doubt.", plural(doubtful, "case"))));
    }
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut ways: Vec<&str> = Vec::new();
    for row in rows {
        let is_of = |g: &&mut Vec<&Row>| (&g[0].subject, &g[0].shape) == (&row.subject, &row.shape);
        match groups.iter_mut().find(is_of) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
        if !row.how.is_empty() && !ways.contains(&&*row.how) {
            ways.push(&row.how);
        }
    }
    let columns = [
        "variant",
        "*speed",
        ">µs",
        ">±",
        ">× best",
        ">warm µs",
        ">overlapped µs",
        ">GB/s",
        ">% of copy",
        ">TFLOP/s",
        ">tok/s",
        ">B / A",
        "verdict",
        ">samples",
        "*doubts",
    ];
    let mut table = Table::new("Results", columns);
    for group in &mut groups {
        if group[0].kind == Kind::Bench {
            group.sort_by(|a, b| a.median_us.total_cmp(&b.median_us));
        }
        let (first, several) = (group[0], group.len() > 1);
        let size =
            first.bytes.map(|bytes| format!(" <small>{} MB</small>", number(bytes / 1e6, 2)));
        table.group(format!(
            "<b>{}</b> {}{}",
            text(&first.subject),
            text(&parameters(&first.subject, &first.shape)),
            size.unwrap_or_default()
        ));
        for row in group.iter() {
            let of_best = ratio(row.median_us, first.median_us).filter(|_| several);
            let variant = match row.b.as_str() {
                "" => row.variant.clone(),
                b => format!("{b} against {}", row.variant),
            };
            let interval = row
                .ratio
                .zip(row.ratio_low)
                .zip(row.ratio_high)
                .map(|((ratio, low), high)| format!("{ratio:.4} [{low:.4}, {high:.4}]"));
            table.rows.push(vec![
                variant,
                of_best.map_or_else(String::new, |times| made::meter(1.0 / times)),
                number(row.median_us, 2),
                percent(row.noise),
                number(of_best, 2),
                number(row.warm_us, 2),
                number(row.overlapped_us, 2),
                number(row.gb_s(), 1),
                percent(row.gb_s().zip(row.copy_gb_s).and_then(|(rate, copy)| ratio(rate, copy))),
                number(row.flops.and_then(|flops| ratio(flops * 1e-6, row.median_us)), 2),
                number(row.tok_s, 1),
                interval.unwrap_or_default(),
                row.verdict.clone(),
                row.n.to_string(),
                made::flags(&doubts(row)),
            ]);
        }
    }
    table.note = format!(
        "Medians with the half-width of their 95 % interval, weights rotated past the last-level \
         cache. Warm: the same weights every time. Overlapped: invocations that need not wait for \
         each other. GB/s: the bytes an invocation must move over the median; copy: the bandwidth \
         of this run. Parameters at their defaults are left out. Measured: {}.",
        if ways.is_empty() { "–".to_owned() } else { ways.join("; ") }
    );
    out + &table.figure()
}

/// Returns true for a rate that cannot have come from memory. Reading alone is faster than copying;
/// where it was not measured, a kernel that reads is allowed more.
pub(super) fn is_above(rate: Option<f64>, copy: Option<f64>, read: Option<f64>) -> bool {
    let [copy, read] = [copy, read].map(|rate| rate.and_then(sound));
    let margin = if read.is_some() { 1.02 } else { 1.1 };
    let most = copy.into_iter().chain(read).reduce(f64::max).map(|best| best * margin);
    rate.and_then(sound).zip(most).is_some_and(|(rate, most)| rate > most)
}

/// Reasons to doubt a row's numbers.
fn doubts(row: &Row) -> Vec<&str> {
    let above = is_above(row.gb_s(), row.copy_gb_s, row.read_gb_s);
    let of_kernel = row.kind == Kind::Bench;
    row.flags().chain((of_kernel && above).then_some("above the bandwidth")).collect()
}

/// The body of a record of `bench decode`.
pub(super) fn tests(run: &GenerationTests, env: &Environment) -> String {
    let unverified = run.tests.iter().filter(|test| test.of.verified.is_none()).count();
    unchecked(unverified) + &generation::tests(run, env).figure()
}

/// The body of a suite.
pub(super) fn suite(run: &Suite) -> String {
    let configs = run.models.iter().flat_map(|model| model.configs.values());
    let unverified = configs.filter(|config| config.of.verified.is_none()).count();
    let tables: String = generation::suite(run).iter().map(Table::figure).collect();
    unchecked(unverified) + &paragraph(&generation::suite_note(run)) + &tables
}

fn unchecked(count: usize) -> String {
    match count {
        0 => String::new(),
        n => warning(&format!("Not verified: the outputs of {n} figures below were not checked.")),
    }
}
