//! Saved runs as one HTML file: offline, readable without scripts, light and dark, printable.
//!
//! ```text
//! html.rs           document, overview, environment
//! html/sections.rs  results, A/B runs, whole generations
//! html/profile.rs   a decode profile: operations, crossover of attention, throughput
//! html/chart.rs     bars, lines over steps, stacked timeline
//! html/style.css    colours and layout
//! ```
//!
//! Charts draw aggregated times: the file grows with its pictures, not with the number of steps.

mod chart;
mod profile;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use lathe_record::record::{Body, Environment, Record, SCHEMA_VERSION};
use lathe_record::row::Run;

use crate::markup::{made, number, plural, sound, text, warning};
use crate::table::Table;

/// Fraction by which the canary kernel may drift before a warning.
const DRIFT: f64 = 0.02;

/// The report on records, each with the name of its file, followed by runs of CSV files. The same
/// input gives the same bytes.
pub fn page(records: &[(String, Record)], runs: &[Run]) -> String {
    let alone = records.len() == 1;
    let title = match records {
        [(_, record)] => format!("{} · Lathe report", subject(&record.body)),
        _ => "Lathe report".to_owned(),
    };
    let mut body = format!("<h1>{}</h1>\n", text(title.trim_end_matches(" · Lathe report")));
    if records.is_empty() && runs.is_empty() {
        body.push_str("<p>No records.</p>\n");
    }
    if !alone {
        body.push_str(&overview(records));
    }
    for (i, (file, record)) in records.iter().enumerate() {
        let section = section(file, &Run::of(file, record), Some(&record.body));
        match alone {
            true => body.push_str(&section),
            false => body.push_str(&format!(
                "<details id=\"r{i}\">\n<summary><h2>{}. {}</h2> {}</summary>\n{section}</details>\n",
                i + 1,
                text(&subject(&record.body)),
                text(&headline(&record.body))
            )),
        }
    }
    for run in runs {
        let section = section("", run, None);
        body.push_str(&format!("<section>\n<h2>{}</h2>\n{section}</section>\n", text(&run.id)));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        text(&title),
        include_str!("html/style.css"),
    )
}

/// Everything about a run below its heading; results of a CSV file have no record behind them.
fn section(file: &str, run: &Run, body: Option<&Body>) -> String {
    let env = &run.environment;
    let facts = [file, &env.adapter, &env.driver, &env.date];
    let facts: Vec<&str> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    let mut html = format!("<p class=\"facts\">{}</p>\n", text(&facts.join(" · ")));
    if let Some(command) = &env.command {
        html.push_str(&format!("<pre>$ {}</pre>\n", text(command)));
    }
    html.extend(warnings(env).iter().map(|line| warning(line)));
    let results = match body {
        Some(Body::Profile(profile)) => profile::section(profile, env),
        Some(Body::Ab(ab)) => sections::ab(ab),
        Some(Body::GenerationTests(run)) => sections::tests(run, env),
        Some(Body::Suite(run)) => sections::suite(run),
        Some(Body::Bench(_)) | None => sections::results(run),
    };
    html + &results + &body.map_or_else(String::new, |_| environment(env))
}

/// Kind and content of a record in a few words.
fn subject(body: &Body) -> String {
    let list = |mut names: Vec<&str>| {
        names.dedup();
        names.join(", ")
    };
    match body {
        Body::Profile(profile) => format!("Decode profile: {}", profile.model),
        Body::Bench(bench) => {
            let kernels: BTreeSet<&str> = bench.cases.iter().map(|c| &*c.kernel).collect();
            match kernels.first().filter(|_| kernels.len() == 1) {
                Some(kernel) => format!("Bench: {kernel}"),
                None => format!("Bench: {}", plural(kernels.len(), "kernel")),
            }
        }
        Body::Ab(ab) => format!("A/B: {} {}", ab.kernel, parameters(&ab.kernel, &ab.shape)),
        Body::GenerationTests(run) => {
            let files = run.tests.iter().map(|test| test.model.file()).collect();
            format!("Prompts and generation: {}", list(files))
        }
        Body::Suite(run) => {
            let files = run.models.iter().map(|model| model.model.file()).collect();
            format!("Generation suite, {} tier: {}", run.tier, list(files))
        }
    }
}

/// A shape without the parameters at their defaults, with room for line breaks.
fn parameters(kernel: &str, shape: &str) -> String {
    let brief = lathe_kernels::kernel(kernel).map(|kernel| kernel.brief(shape));
    brief.unwrap_or_else(|| shape.to_owned()).replace(',', ", ")
}

/// The result of a record in a few words.
fn headline(body: &Body) -> String {
    match body {
        Body::Profile(profile) => format!("{} tok/s", number(profile.unprofiled.decode_tok_s, 1)),
        Body::Bench(bench) => plural(bench.cases.len(), "case"),
        Body::Ab(ab) => format!("{} {}", ab.found.verdict, number(ab.found.ratio.median, 4)),
        Body::GenerationTests(run) => plural(run.tests.len(), "test"),
        Body::Suite(run) => {
            let configs = run.models.iter().map(|model| model.configs.len()).sum();
            plural(configs, "configuration")
        }
    }
}

/// All rates in one table, and all comparisons on one axis, where there are several.
fn overview(records: &[(String, Record)]) -> String {
    let mut rates = Vec::new();
    let mut compared = Vec::new();
    for (i, (file, record)) in records.iter().enumerate() {
        let run = Run::of(file, record);
        rates.extend(run.rows.into_iter().filter_map(|row| Some((i, record, row.tok_s?, row))));
        if let Body::Ab(ab) = &record.body {
            compared.push((format!("{}. {} {}", i + 1, ab.kernel, ab.b), ab));
        }
    }
    rates.sort_by(|(.., a), (.., b)| (&a.subject, &a.shape).cmp(&(&b.subject, &b.shape)));
    let most = rates.iter().filter_map(|(_, _, rate, _)| sound(*rate)).fold(0.0, f64::max);
    let columns = ["model", "~test", ">tok/s", "*", "~adapter", ">date", "*record"];
    let mut table = Table::new("All decodes", columns);
    table.note = "Tokens a second by the wall clock.".into();
    for (i, record, rate, row) in rates {
        table.rows.push(vec![
            row.subject,
            row.shape,
            number(rate, 1),
            made::meter(rate / most),
            record.environment.adapter.clone(),
            record.environment.date.chars().take(10).collect(),
            format!("<a href=\"#r{i}\">{}</a>", i + 1),
        ]);
    }
    let rates = if table.rows.len() > 1 { table.figure() } else { String::new() };
    match compared.len() > 1 {
        true => rates + &sections::ratios("All comparisons", &compared, ""),
        false => rates,
    }
}

/// Reasons to distrust every number of a run.
fn warnings(env: &Environment) -> Vec<String> {
    let mut warnings = Vec::new();
    if env.software {
        warnings
            .push(format!("{} is a software adapter: no subject for speed claims.", env.adapter));
    }
    if let Some(drift) = env.canary_drift.and_then(sound).filter(|d| *d > DRIFT) {
        warnings.push(format!(
            "The canary kernel's time changed by {:.1} % during the run: clocks or load moved.",
            drift * 100.0
        ));
    }
    if env.timestamp_quantum_ns.is_none() {
        warnings.push("The adapter has no timestamps: times are by the wall clock.".to_owned());
    }
    if env.dirty == Some(true) {
        warnings.push("Built from a tree with changes that no commit holds.".to_owned());
    }
    warnings
}

/// The machine and versions of a run; nothing of what was not measured or kept.
fn environment(env: &Environment) -> String {
    let dirty = if env.dirty == Some(true) { ", with changes" } else { "" };
    let software = if env.software { " (software)" } else { "" };
    let measured = |value: Option<f64>, decimals: usize, unit: &str| {
        value.and_then(sound).map(|value| format!("{} {unit}", number(value, decimals)))
    };
    let rows = [
        ("adapter", Some(format!("{}{software}", env.adapter))),
        ("driver", Some(env.driver.clone())),
        ("backend", Some(env.backend.clone())),
        ("copy bandwidth", measured(env.copy_gb_s, 1, "GB/s, read plus written")),
        ("read bandwidth", measured(env.read_gb_s, 1, "GB/s")),
        ("dependent launch", measured(env.ceilings.map(|c| c.dependent_us), 2, "µs")),
        ("timestamp resolution", measured(env.timestamp_quantum_ns, 2, "ns")),
        ("canary drift", measured(env.canary_drift.map(|d| d * 100.0), 2, "%")),
        ("run-time checks", Some(env.runtime_checks.clone())),
        ("system", Some(env.os.clone())),
        ("processor", env.machine.as_ref().and_then(|machine| machine.cpu.clone())),
        ("commit", env.commit.as_ref().map(|commit| format!("{commit}{dirty}"))),
        ("lathe", Some(env.lathe.clone())),
        ("wgpu", Some(env.wgpu.clone())),
        ("record schema", Some(SCHEMA_VERSION.to_string())),
    ];
    let mut table = Table::new("Environment", ["~", "~value"]);
    for (name, value) in rows {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        table.rows.push(vec![name.to_owned(), value]);
    }
    table.figure()
}
