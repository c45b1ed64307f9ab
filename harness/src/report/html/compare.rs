//! The sections of bench and A/B records.

use super::bars::ratio_strip;
use super::markup::{
    NONE, Set, Table, at_least, flags, maybe, meter, number, paragraph, percent, plural, ratio,
    sound, tiles, warning,
};
use super::svg::figure;
use crate::data::Word;
use crate::data::paired::Verdict;
use crate::data::record::{Ab, Bench, Clock, Environment};

/// The body of a bench record.
pub(super) fn bench(bench: &Bench, environment: &Environment) -> String {
    if bench.cases.is_empty() {
        return paragraph("The record holds no case.");
    }
    let mut table = Table::new(
        &format!("{}, time of one invocation", plural(bench.cases.len(), "case")),
        &[
            ("kernel", Set::Name),
            ("variant", Set::Name),
            ("shape", Set::Name),
            ("cold µs", Set::Figure),
            ("±", Set::Figure),
            ("warm µs", Set::Figure),
            ("±", Set::Figure),
            ("MB", Set::Figure),
            ("GB/s", Set::Figure),
            ("% of copy bandwidth", Set::Figure),
            ("", Set::Bar),
            ("warnings", Set::Bar),
        ],
    );
    let mut doubtful = 0;
    for case in &bench.cases {
        let mut warnings: Vec<_> = case.flags.iter().map(ToString::to_string).collect();
        if case.clock != Clock::Gpu {
            warnings.push(format!("{} clock", case.clock));
        }
        if sound(case.fraction_of_copy).is_some_and(|f| f > 1.1) {
            warnings.push("above copy".into());
        }
        doubtful += usize::from(!warnings.is_empty());
        table.row(&[
            case.kernel.clone(),
            case.variant.clone(),
            case.shape.replace(',', ", "),
            number(case.cold.median_us, 2),
            percent(case.cold.noise),
            number(case.warm.median_us, 2),
            percent(case.warm.noise),
            at_least(case.bytes / 1e6, 2),
            number(case.gb_s, 1),
            percent(case.fraction_of_copy),
            meter(case.fraction_of_copy),
            flags(&warnings),
        ]);
    }
    let mut out = String::new();
    if doubtful > 0 {
        out.push_str(&warning(&format!(
            "{} with a flag: read the last column before the number.",
            plural(doubtful, "case")
        )));
    }
    for reason in &bench.failed {
        out.push_str(&warning(&format!("No result: {reason}")));
    }
    let copy = environment.copy_gb_s.and_then(sound);
    let against = match copy {
        Some(copy) => format!("the copy bandwidth measured in this run, {copy:.0} GB/s"),
        None => "a copy bandwidth that this run did not measure".to_owned(),
    };
    out.push_str(&figure(
        "Kernels",
        &table.finish(),
        &format!(
            "Medians; ± is the half-width of the median's 95 % interval. Cold: weights rotated past \
             the last-level cache. Warm: the same weights every time. GB/s: the bytes an \
             invocation must move over the cold median; the bar compares it with {against}."
        ),
    ));
    out
}

/// The body of an A/B record.
pub(super) fn ab(ab: &Ab) -> String {
    let mut out = format!(
        "<p class=\"verdict\"><strong>{}</strong> {}</p>\n",
        super::markup::text(&ab.verdict.to_string()),
        super::markup::text(&in_words(ab))
    );
    let times = |us: f64| if us >= 10_000.0 { (us / 1000.0, "ms") } else { (us, "µs") };
    let ((a, a_unit), (b, b_unit)) = (times(ab.a_us), times(ab.b_us));
    out.push_str(&tiles(&[
        ("A", number(a, 2), a_unit, ab.a.clone()),
        ("B", number(b, 2), b_unit, ab.b.clone()),
        ("time of B over A", number(ab.ratio.median, 4), "", interval(ab)),
        ("same within", percent(ab.indifference), "", "half-width of the zone around 1".into()),
    ]));
    out.push_str(&figure(
        "Ratio of times",
        &ratio_strip(&[("B against A".into(), ab)]),
        &format!(
            "{} of A and B in turns. Dot: median. Whiskers: 95 % interval. Grey: A against itself in the \
             same run, which shows what this machine calls a difference when there is none. \
             Shaded: the zone that counts as the same. A verdict needs the whole interval on one \
             side of the zone, or inside it.",
            plural(ab.blocks, "block")
        ),
    ));
    out
}

fn interval(ab: &Ab) -> String {
    format!("95 % interval {} to {}", number(ab.ratio.low, 4), number(ab.ratio.high, 4))
}

/// The verdict as a sentence.
fn in_words(ab: &Ab) -> String {
    let change = sound(ab.ratio.median).map_or_else(
        || NONE.to_owned(),
        |m| {
            format!(
                "{:.1} % {} time",
                (m - 1.0).abs() * 100.0,
                if m < 1.0 { "less" } else { "more" }
            )
        },
    );
    let zone = format!("the zone of ±{} around 1", percent(ab.indifference));
    let (a, b) = (&ab.a, &ab.b);
    match ab.verdict {
        Word::Known(Verdict::Faster) => {
            let speed = maybe(ratio(1.0, ab.ratio.median), 2);
            format!(
                "{b} takes {change} than {a} ({speed}× its speed): the interval is below {zone}."
            )
        }
        Word::Known(Verdict::Slower) => {
            format!("{b} takes {change} than {a}: the interval is above {zone}.")
        }
        Word::Known(Verdict::Same) => {
            format!("{b} and {a} take the same time: the interval is inside {zone}.")
        }
        Word::Known(Verdict::Inconclusive) => format!(
            "This run cannot tell {b} from {a}: the interval reaches across an end of {zone}. \
             More blocks or a quieter machine may."
        ),
        Word::Other(_) => format!("{b} against {a}: {}.", interval(ab)),
    }
}
