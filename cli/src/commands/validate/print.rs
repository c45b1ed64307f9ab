//! Tables of `lathe validate`.

use lathe_harness::plan::limits::Profile;

use super::file::Found;
use super::{Fit, Row, asked};
use crate::{out, table};

pub(super) fn print(profiles: &[Profile], rows: &[Row], found: &Found, file: Option<&str>) {
    let is_file = file.is_some();
    // Outcomes and demands of a row are two tables: one alone is too wide for a terminal.
    let first = if is_file { "entry" } else { "kernel, variant" };
    let mut outcomes = match profiles {
        [] => table::table(&[first, "shapes", "written as"], &[1]),
        _ => {
            let header = [first].into_iter().chain(profiles.iter().map(|profile| profile.name));
            table::table(&header.collect::<Vec<_>>(), &[])
        }
    };
    let mut demands =
        table::table(&[first, "buffers", "memory", "invocations", "needs"], &[1, 2, 3]);
    let mut kernel = "";
    for row in rows {
        let name = match row.name.split_once('/').filter(|_| !is_file) {
            Some((own, variant)) => {
                if own != kernel {
                    kernel = own;
                    demands.add_row([own, "", "", "", ""]);
                    outcomes.add_row([own].into_iter().chain(vec![
                        "";
                        if profiles.is_empty() {
                            2
                        } else {
                            profiles.len()
                        }
                    ]));
                }
                // One blank: the longest name fits so.
                format!(" {variant}")
            }
            None => row.name.clone(),
        };
        match profiles {
            [] => outcomes.add_row([name.clone(), row.shapes.to_string(), row.found()]),
            _ => outcomes.add_row([name.clone()].into_iter().chain(row.fits.iter().map(Fit::text))),
        };
        // In short, for the table to be narrow.
        let needs = row.needs.iter().filter_map(|need| need.rsplit([' ', '-']).next());
        let needs = needs.collect::<Vec<_>>().join("\n");
        demands.add_row([
            name,
            row.storage_buffers.to_string(),
            table::bytes(row.workgroup_memory.into()),
            row.invocations.to_string(),
            if needs.is_empty() { "-".into() } else { needs },
        ]);
    }
    out::fitted(outcomes);
    if is_file || !profiles.is_empty() {
        outln!();
        out::fitted(demands);
    }
    for row in rows {
        for fit in &row.fits {
            for reason in &fit.reasons {
                outln!("{} on {}: {reason}", row.name, fit.profile);
            }
        }
    }
    for profile in profiles {
        let caps = &profile.caps;
        let subgroups = caps.subgroup.map_or_else(
            || "no subgroups".into(),
            |(min, max)| format!("subgroups of {min} to {max}"),
        );
        outln!(
            "{}: {}; {} storage buffers, {} of workgroup memory, {} invocations, {subgroups}, {}",
            profile.name,
            profile.what,
            caps.storage_buffers,
            table::bytes(caps.workgroup_memory.into()),
            caps.invocations,
            if caps.f16 { "f16" } else { "no f16" },
        );
        for source in profile.sources {
            outln!("  {source}");
        }
    }
    for violation in &found.violations {
        outln!("{}: {}", violation.place, violation.what);
        for (place, why) in &violation.because {
            match place {
                Some(place) => outln!("  {place}: {why}"),
                None => outln!("  {why}"),
            }
        }
    }
    for lint in &found.lints {
        outln!("{}:{}: {}: {}", file.unwrap_or_default(), lint.line, lint.engine, lint.what);
    }
    for line in asked::summary(rows) {
        outln!("{line}");
    }
    let failed = found.failed(rows);
    outln!("{} valid, {failed} not", rows.len() - failed);
}

impl Row {
    /// The outcome of the writers.
    fn found(&self) -> String {
        let missing = self.unsupported.iter().map(|l| format!("; unsupported by {l}"));
        match self.errors.as_slice() {
            [] => self.back_ends.join(", ") + &missing.collect::<String>(),
            [first] => first.clone(),
            [first, ..] => format!("{} errors; {first}", self.errors.len()),
        }
    }
}

impl Fit {
    fn text(&self) -> String {
        match (self.shapes, self.of) {
            (runs, of) if runs == of => "yes".into(),
            (0, _) => "no".into(),
            (runs, of) => format!("{runs} of {of}"),
        }
    }
}
