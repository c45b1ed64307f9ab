//! A run of a CSV file: its rows as one table.

use lathe_record::row::Run;

use super::markup::{Set, Table, maybe, number, text};

/// The section of a run.
pub(super) fn section(run: &Run) -> String {
    let e = &run.environment;
    let facts = [e.adapter.as_str(), &e.driver, &e.date].join(" · ");
    let mut table = Table::new("Results");
    for row in &run.rows {
        let interval = match (row.ratio, row.ratio_low, row.ratio_high) {
            (Some(ratio), Some(low), Some(high)) => format!("{ratio:.4} [{low:.4}, {high:.4}]"),
            _ => String::new(),
        };
        let sides = match row.b.as_str() {
            "" => row.variant.clone(),
            b => format!("{} against {b}", row.variant),
        };
        table.row([
            ("of", Set::Name, row.subject.clone()),
            ("variant", Set::Name, sides),
            ("shape or test", Set::Name, row.shape.replace(',', ", ")),
            ("µs", Set::Figure, number(row.median_us, 2)),
            ("±", Set::Figure, format!("{:.1} %", 100.0 * row.noise)),
            ("samples", Set::Figure, row.n.to_string()),
            ("warm µs", Set::Figure, maybe(row.warm_us, 2)),
            ("GB/s", Set::Figure, maybe(row.gb_s(), 0)),
            ("tok/s", Set::Figure, maybe(row.tok_s, 1)),
            ("B / A", Set::Figure, interval),
            ("verdict", Set::Name, row.verdict.clone()),
            ("doubts", Set::Prose, row.flags.clone()),
        ]);
    }
    let command = e.command.as_deref().unwrap_or_default();
    format!(
        "<section>\n<h2>{}</h2>\n<p class=\"facts\">{}</p>\n<pre>$ {}</pre>\n{}</section>\n",
        text(&run.id),
        text(&facts),
        text(command),
        table.finish()
    )
}
