//! Saved runs as one HTML file: offline, readable without scripts, light and dark, printable.
//!
//! ```text
//! html.rs            document, contents, environment
//! html/profile.rs    a decode profile            html/crossover.rs  attention against matmul
//! html/compare.rs    bench and A/B records      html/generation.rs bench decode and suite
//! html/steps.rs      charts over steps           html/bars.rs       roofline, ratio strip
//! html/svg.rs        scales, axes, paths         html/markup.rs     escaping, numbers, tables
//! html/style.css     colours and layout
//! ```
//!
//! Times are aggregated before they are drawn, so the file grows with what can be seen and not
//! with the number of steps.

mod bars;
mod compare;
mod crossover;
mod generation;
mod markup;
mod profile;
mod steps;
mod svg;
#[cfg(test)]
mod tests;

use markup::{maybe, number, plural, sound, text, warning};

use crate::data::record::{Ab, Body, Environment, Record};

/// Fraction by which the canary kernel may drift before the numbers are doubtful.
const DRIFT: f64 = 0.02;

/// The report on `records`, each with the name of its file. The same records give the same bytes.
pub fn render(records: &[(String, Record)]) -> String {
    let title = match records {
        [(_, record)] => format!("{} · Lathe report", subject(&record.body)),
        _ => "Lathe report".to_owned(),
    };
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta \
         name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n<main>\n",
        text(&title),
        include_str!("html/style.css")
    );
    match records {
        [] => html.push_str("<h1>Lathe report</h1>\n<p>No records.</p>\n"),
        [_] => {}
        _ => {
            html.push_str("<h1>Lathe report</h1>\n");
            html.push_str(&contents(records));
            html.push_str(&comparisons(records));
        }
    }
    let mut colours = svg::Colours::new();
    for (i, (file, record)) in records.iter().enumerate() {
        html.push_str(&section(i, records.len(), file, record, &mut colours));
    }
    html.push_str("</main>\n</body>\n</html>\n");
    html
}

fn section(
    index: usize,
    of: usize,
    file: &str,
    record: &Record,
    colours: &mut svg::Colours,
) -> String {
    let env = &record.environment;
    let (level, number) =
        if of == 1 { ("h1", String::new()) } else { ("h2", format!("{}. ", index + 1)) };
    let mut html = format!(
        "<section id=\"r{index}\">\n<{level}>{number}{}</{level}>\n<p class=\"facts\">{}</p>\n",
        text(&subject(&record.body)),
        text(&[file, &env.adapter, &env.driver, &env.date].join(" · "))
    );
    for line in doubts(env) {
        html.push_str(&warning(&line));
    }
    html.push_str(&match &record.body {
        Body::Profile(profile) => profile::section(profile, env, colours),
        Body::Bench(bench) => compare::bench(bench, env),
        Body::Ab(ab) => compare::ab(ab),
        Body::GenerationTests(run) => generation::tests(run, env),
        Body::Suite(run) => generation::suite(run),
    });
    html.push_str(&environment(record));
    html.push_str("</section>\n");
    html
}

/// What a record is about.
fn subject(body: &Body) -> String {
    match body {
        Body::Profile(profile) => format!("Decode profile: {}", profile.model),
        Body::Bench(bench) => {
            let mut kernels: Vec<&str> = bench.cases.iter().map(|c| &*c.kernel).collect();
            kernels.sort_unstable();
            kernels.dedup();
            match kernels[..] {
                [] => "Bench".to_owned(),
                [kernel] => format!("Bench: {kernel}"),
                _ => format!("Bench: {} kernels", kernels.len()),
            }
        }
        Body::Ab(ab) => format!("A/B: {} {}", ab.kernel, ab.shape),
        Body::GenerationTests(run) => {
            let mut files: Vec<&str> = run.tests.iter().map(|test| test.model.file()).collect();
            files.dedup();
            format!("Prompts and generation: {}", files.join(", "))
        }
        Body::Suite(run) => {
            let files: Vec<&str> = run.models.iter().map(|model| model.model.file()).collect();
            format!("Generation suite, {} tier: {}", run.tier, files.join(", "))
        }
    }
}

/// The result of a record in a few words.
fn result(body: &Body) -> String {
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

fn contents(records: &[(String, Record)]) -> String {
    let mut html = String::from("<nav aria-label=\"Contents\">\n<ol class=\"contents\">\n");
    for (i, (file, record)) in records.iter().enumerate() {
        html.push_str(&format!(
            "<li><a href=\"#r{i}\">{}</a> <strong>{}</strong> <span class=\"facts\">{}</span></li>\n",
            text(&subject(&record.body)),
            text(&result(&record.body)),
            text(&[&**file, &record.environment.adapter].join(" · "))
        ));
    }
    html.push_str("</ol>\n</nav>\n");
    html
}

/// All comparisons on one axis, when there are several.
fn comparisons(records: &[(String, Record)]) -> String {
    let rows: Vec<(String, &Ab)> = records
        .iter()
        .enumerate()
        .filter_map(|(i, (_, record))| match &record.body {
            Body::Ab(ab) => Some((format!("{}. {} {}", i + 1, ab.kernel, ab.b), ab)),
            _ => None,
        })
        .collect();
    if rows.len() < 2 {
        return String::new();
    }
    let caption = "Time of B over time of A with its 95 % interval; grey: A against itself in the \
                   same run; shaded: the zone that counts as the same.";
    svg::figure("All comparisons", &bars::ratio_strip(&rows), caption)
}

/// What makes every number of a run doubtful.
fn doubts(env: &Environment) -> Vec<String> {
    let mut doubts = Vec::new();
    if env.software {
        doubts.push(format!("{} is a software adapter: no subject for speed claims.", env.adapter));
    }
    if let Some(drift) = env.canary_drift.and_then(sound).filter(|d| *d > DRIFT) {
        doubts.push(format!(
            "The canary kernel's time changed by {:.1} % during the run: clocks or load moved.",
            drift * 100.0
        ));
    }
    if env.timestamp_quantum_ns.is_none() {
        doubts.push("The adapter has no timestamps: times are by the wall clock.".to_owned());
    }
    if env.dirty == Some(true) {
        doubts.push("Built from a tree with changes that no commit holds.".to_owned());
    }
    doubts
}

fn environment(record: &Record) -> String {
    let env = &record.environment;
    let unknown = || "unknown".to_owned();
    let commit = env.commit.clone().map_or_else(unknown, |commit| match env.dirty {
        Some(true) => format!("{commit}, with changes"),
        Some(false) => commit,
        None => format!("{commit}, changes unknown"),
    });
    let software = if env.software { " (software)" } else { "" };
    let rows = [
        ("date", env.date.clone()),
        ("adapter", format!("{}{software}", env.adapter)),
        ("driver", env.driver.clone()),
        ("backend", env.backend.clone()),
        ("copy bandwidth", format!("{} GB/s, read plus written", maybe(env.copy_gb_s, 1))),
        ("read bandwidth", format!("{} GB/s", maybe(env.read_gb_s, 1))),
        ("timestamp resolution", format!("{} ns", maybe(env.timestamp_quantum_ns, 2))),
        ("canary drift", format!("{} %", maybe(env.canary_drift.map(|d| d * 100.0), 2))),
        ("run-time checks", env.runtime_checks.clone()),
        ("system", env.os.clone()),
        ("commit", commit),
        ("lathe", env.lathe.clone()),
        ("wgpu", env.wgpu.clone()),
        ("record schema", record.schema_version.to_string()),
        ("command", env.command.clone().unwrap_or_else(unknown)),
    ];
    let mut list = String::from("<dl class=\"environment\">\n");
    for (name, value) in rows {
        list.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", text(name), text(&value)));
    }
    list.push_str("</dl>\n");
    svg::figure("Environment", &list, "")
}
