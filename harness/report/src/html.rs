//! Saved runs as one HTML file: offline, readable without scripts, light and dark, printable.
//!
//! ```text
//! html.rs           document, overview, environment
//! html/sections.rs  A/B runs, benchmarks, whole generations
//! html/profile.rs   a decode profile: operations, crossover of attention, throughput
//! html/rows.rs      runs of CSV files
//! html/chart.rs     bars, lines over steps, stacked timeline
//! html/markup.rs    escaping, numbers, the one table
//! html/style.css    colours and layout
//! ```
//!
//! Charts draw aggregated times: the file grows with its pictures, not with the number of steps.

mod chart;
mod markup;
mod profile;
mod rows;
mod sections;
#[cfg(test)]
mod tests;

use lathe_record::record::{Body, Environment, Record};
use lathe_record::row::Run;
pub(crate) use markup::number;
use markup::{Set, Table, figure, made, plural, sound, text, warning};

/// Fraction by which the canary kernel may drift before a warning.
const DRIFT: f64 = 0.02;

/// The report on `records`, each with the name of its file. The same records give the same bytes.
pub fn render(records: &[(String, Record)]) -> String {
    page(records, &[])
}

/// The report on `records`, followed by runs of CSV files.
pub fn page(records: &[(String, Record)], runs: &[Run]) -> String {
    let title = match records {
        [(_, record)] => format!("{} · Lathe report", subject(&record.body)),
        _ => "Lathe report".to_owned(),
    };
    let body = match records {
        [] if !runs.is_empty() => "<h1>Lathe report</h1>\n".to_owned(),
        [] => "<h1>Lathe report</h1>\n<p>No records.</p>\n".to_owned(),
        [(file, record)] => {
            let heading = format!("<h1>{}</h1>\n", text(&subject(&record.body)));
            heading + &section(file, record)
        }
        many => {
            let sections = many.iter().enumerate().map(|(i, (file, record))| {
                format!(
                    "<details id=\"r{i}\">\n<summary><h2>{}. {}</h2> {}</summary>\n{}</details>\n",
                    i + 1,
                    text(&subject(&record.body)),
                    text(&headline(&record.body)),
                    section(file, record)
                )
            });
            format!("<h1>Lathe report</h1>\n{}{}", overview(many), sections.collect::<String>())
        }
    };
    let runs: String = runs.iter().map(rows::section).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n<main>\n{body}{runs}</main>\n</body>\n</html>\n",
        text(&title),
        include_str!("html/style.css"),
    )
}

/// Everything about a record below its heading.
fn section(file: &str, record: &Record) -> String {
    let env = &record.environment;
    let facts = [file, &env.adapter, &env.driver, &env.date].join(" · ");
    let mut html = format!("<p class=\"facts\">{}</p>\n", text(&facts));
    if let Some(command) = &env.command {
        html.push_str(&format!("<pre>$ {}</pre>\n", text(command)));
    }
    html.extend(warnings(env).iter().map(|line| warning(line)));
    html.push_str(&match &record.body {
        Body::Profile(profile) => profile::section(profile, env),
        Body::Bench(bench) => sections::bench(bench, env),
        Body::Ab(ab) => sections::ab(ab),
        Body::GenerationTests(run) => sections::tests(run, env),
        Body::Suite(run) => sections::suite(run),
    });
    html + &environment(record)
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
            let mut kernels: Vec<&str> = bench.cases.iter().map(|c| &*c.kernel).collect();
            kernels.sort_unstable();
            kernels.dedup();
            match kernels[..] {
                [kernel] => format!("Bench: {kernel}"),
                _ => format!("Bench: {}", plural(kernels.len(), "kernel")),
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
        Body::Ab(ab) => format!("{} {}", ab.verdict, number(ab.ratio.median, 4)),
        Body::GenerationTests(run) => plural(run.tests.len(), "test"),
        Body::Suite(run) => {
            let configs = run.models.iter().map(|model| model.configs.len()).sum();
            plural(configs, "configuration")
        }
    }
}

/// Model, test and speed of every decode of one sequence in a record.
fn decodes(body: &Body) -> Vec<(String, String, f64)> {
    match body {
        Body::Profile(p) => {
            let test = format!("profile, {} prompt tokens", p.prompt_tokens);
            vec![(p.model.clone(), test, p.unprofiled.decode_tok_s)]
        }
        Body::GenerationTests(run) => {
            let alone = run.tests.iter().filter(|t| t.n_gen > 0 && t.sequences == 1);
            let row = |t: &lathe_record::record::GenerationTest| {
                let steps = plural(t.steps_per_submit.unwrap_or(1), "step");
                (t.model.file().to_owned(), format!("{}, {steps} a submission", t.test), t.avg_ts)
            };
            alone.map(row).collect()
        }
        Body::Suite(run) => {
            let configs = run.models.iter().flat_map(|model| {
                model.configs.iter().map(move |(name, config)| (&model.model, name, config))
            });
            let row =
                |(model, name, config): (&lathe_record::record::MeasuredModel, &String, _)| {
                    let config: &lathe_record::record::SuiteConfig = config;
                    (model.file().to_owned(), format!("suite, {name}"), config.decode_tok_s)
                };
            configs.map(row).collect()
        }
        Body::Bench(_) | Body::Ab(_) => Vec::new(),
    }
}

/// All decodes in one table, and all comparisons on one axis, where there are several.
fn overview(records: &[(String, Record)]) -> String {
    let mut html = String::new();
    let numbered = || records.iter().enumerate().map(|(i, (_, record))| (i, record));
    let mut rows: Vec<_> = numbered()
        .flat_map(|(i, record)| decodes(&record.body).into_iter().map(move |row| (i, record, row)))
        .collect();
    rows.sort_by(|(i, a, (model, test, _)), (j, b, (other, other_test, _))| {
        let key = |record: &Record| record.environment.adapter.clone();
        (key(a), model, test, i).cmp(&(key(b), other, other_test, j))
    });
    if rows.len() > 1 {
        let most = rows.iter().filter_map(|(.., (.., tok_s))| sound(*tok_s)).fold(0.0, f64::max);
        let mut table = Table::new("Decodes of all records, wall clock, one sequence at a time");
        for (i, record, (model, test, tok_s)) in rows {
            let link = format!("<a href=\"#r{i}\">{}</a>", i + 1);
            table.row([
                ("model", Set::Name, model),
                ("test", Set::Prose, test),
                ("tok/s", Set::Figure, number(tok_s, 1)),
                ("", Set::Made, made::meter(tok_s / most)),
                ("adapter", Set::Prose, record.environment.adapter.clone()),
                ("date", Set::Figure, record.environment.date.chars().take(10).collect()),
                ("record", Set::Made, link),
            ]);
        }
        html.push_str(&figure("All decodes", &table.finish(), ""));
    }
    let compared: Vec<_> = numbered()
        .filter_map(|(i, record)| match &record.body {
            Body::Ab(ab) => Some((format!("{}. {} {}", i + 1, ab.kernel, ab.b), ab)),
            _ => None,
        })
        .collect();
    if compared.len() > 1 {
        html.push_str(&sections::ratios("All comparisons", &compared, ""));
    }
    html
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

fn environment(record: &Record) -> String {
    let env = &record.environment;
    let dirty = if env.dirty == Some(true) { ", with changes" } else { "" };
    let software = if env.software { " (software)" } else { "" };
    let measured = |value: Option<f64>, decimals: usize, unit: &str| {
        value.and_then(sound).map(|value| format!("{} {unit}", number(value, decimals)))
    };
    // Nothing is shown of what was not measured or kept.
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
        ("record schema", Some(record.schema_version.to_string())),
    ];
    let mut table = Table::new("Machine and versions");
    for (name, value) in rows {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        table.row([("", Set::Prose, name.to_owned()), ("value", Set::Prose, value)]);
    }
    figure("Environment", &table.finish(), "")
}
