//! The section of an A/B record.

use lathe_record::Word;
use lathe_record::paired::Verdict;
use lathe_record::record::Ab;

use super::bars::{ratio_strip, verdict_class};
use super::markup::{NONE, flags, maybe, number, paragraph, percent, plural, ratio, sound, tiles};
use super::svg::figure;

/// The body of an A/B record.
pub(super) fn section(ab: &Ab) -> String {
    let mut out = format!(
        "<p class=\"verdict\"><strong class=\"{}\">{}</strong> {}</p>\n",
        verdict_class(&ab.verdict),
        super::markup::text(&ab.verdict.to_string()),
        super::markup::text(&in_words(ab))
    );
    let warnings: Vec<_> = ab.flags.iter().map(ToString::to_string).collect();
    if !warnings.is_empty() {
        out.push_str(&format!("<p>{}</p>\n", flags(&warnings)));
    }
    if let Some(golden) = &ab.golden {
        out.push_str(&paragraph(&golden.to_string()));
    }
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
            "{} of A and B in turns. Dot: median. Whiskers: {}. Grey: A against itself in the \
             same run, which shows what this machine calls a difference when there is none. \
             The axis is logarithmic: twice the time lies as far from 1 as half of it. Shaded: the zone that counts as the same. A verdict needs the whole interval on one \
             side of the zone, or inside it.",
            plural(ab.blocks, "block"),
            ab.interval()
        ),
    ));
    out
}

fn interval(ab: &Ab) -> String {
    format!("{} {} to {}", ab.interval(), number(ab.ratio.low, 4), number(ab.ratio.high, 4))
}

/// The verdict as a sentence.
fn in_words(ab: &Ab) -> String {
    let less = if ab.ratio.median < 1.0 { "less" } else { "more" };
    let change = match sound(ab.ratio.median) {
        Some(median) => format!("{:.1} % {less} time", (median - 1.0).abs() * 100.0),
        None => NONE.to_owned(),
    };
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
