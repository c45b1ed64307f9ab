//! Saved runs as one HTML file: offline, readable without scripts, light and dark, printable.
//!
//! ```text
//! html.rs            document, headings, environment
//! html/overview.rs   all decodes at a glance    html/ceilings.rs   measured bandwidths
//! html/profile.rs    a decode profile           html/crossover.rs  attention against matmul
//! html/bench.rs      kernels on their own       html/ab.rs         two variants in one run
//! html/generation.rs bench decode and suite     html/bars.rs       roofline, ratio strip
//! html/steps.rs      charts over steps          html/svg.rs        scales, axes, paths
//! html/markup.rs     escaping, numbers, tables  html/style.css     colours and layout
//! ```
//!
//! Times are aggregated before they are drawn, so the file grows with what can be seen and not
//! with the number of steps.

mod ab;
mod bars;
mod bench;
mod ceilings;
mod crossover;
mod generation;
mod markup;
mod overview;
mod profile;
mod steps;
mod svg;
#[cfg(test)]
mod tests;

use lathe_record::record::{Ab, Body, Environment, Record};
pub(super) use markup::number;
use markup::{plural, sound, text, warning};

/// Fraction by which the canary kernel may drift before a warning.
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
            let overview = overview::decodes(records) + &comparisons(records);
            html.push_str(&anchored(&overview, "all"));
            html.push_str("<h2 class=\"records\">Records</h2>\n");
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
    let subject = text(&subject(&record.body));
    let facts = text(&[file, &env.adapter, &env.driver, &env.date].join(" · "));
    let mut html = match of {
        1 => format!("<section id=\"r{index}\">\n<h1>{subject}</h1>\n"),
        // A link to what is inside opens it.
        _ => format!(
            "<details class=\"record\">\n<summary class=\"headline\"><h2>{}. {subject}</h2> <strong>{}</strong>\n<span \
             class=\"facts\">{facts}</span></summary>\n<section id=\"r{index}\">\n",
            index + 1,
            text(&result(&record.body))
        ),
    };
    if of == 1 {
        html.push_str(&format!("<p class=\"facts\">{facts}</p>\n"));
    }
    if let Some(command) = &env.command {
        html.push_str(&format!("<p class=\"command\"><code>{}</code></p>\n", text(command)));
    }
    for line in warnings(env) {
        html.push_str(&warning(&line));
    }
    let body = match &record.body {
        Body::Profile(profile) => profile::section(profile, env, colours),
        Body::Bench(bench) => bench::section(bench, env),
        Body::Ab(ab) => ab::section(ab),
        Body::GenerationTests(run) => generation::tests(run, env),
        Body::Suite(run) => generation::suite(run),
    };
    html.push_str(&anchored(&(body + &environment(record)), &format!("r{index}")));
    html.push_str("</section>\n");
    if of > 1 {
        html.push_str("</details>\n");
    }
    html
}

/// Gives the headings of a part names that a link can say, and links to themselves. What a record
/// says has no markup: every `<h3>` is one of [`svg::figure`]'s.
fn anchored(html: &str, part: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut pieces = html.split("<h3>");
    out.push_str(pieces.next().unwrap_or_default());
    let mut seen: Vec<String> = Vec::new();
    for piece in pieces {
        let (heading, rest) = piece.split_once("</h3>").unwrap_or((piece, ""));
        let mut name = part.to_owned();
        for word in heading.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()) {
            name.push('-');
            name.push_str(&word.to_ascii_lowercase());
        }
        let before = seen.iter().filter(|other| **other == name).count();
        seen.push(name.clone());
        if before > 0 {
            name.push_str(&format!("-{}", before + 1));
        }
        out.push_str(&format!(
            "<h3 id=\"{name}\">{heading} <a class=\"anchor\" href=\"#{name}\" \
             aria-label=\"link to this part\">#</a></h3>{rest}"
        ));
    }
    out
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
        Body::Ab(ab) => format!("A/B: {} {}", ab.kernel, parameters(&ab.kernel, &ab.shape)),
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

/// A shape as headings have it: without parameters at their defaults, with room for line breaks.
fn parameters(kernel: &str, shape: &str) -> String {
    let brief = lathe_kernels::kernel(kernel).map(|kernel| kernel.brief(shape));
    brief.unwrap_or_else(|| shape.to_owned()).replace(',', ", ")
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
    let caption = "Time of B over time of A with its interval, on a logarithmic axis; grey: A \
                   against itself in the same run; shaded: the zone that counts as the same.";
    svg::figure("All comparisons", &bars::ratio_strip(&rows), caption)
}

/// Why not to trust any number of a run.
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
    let commit = env.commit.clone().map(|commit| match env.dirty {
        Some(true) => format!("{commit}, with changes"),
        Some(false) => commit,
        None => format!("{commit}, changes unknown"),
    });
    let software = if env.software { " (software)" } else { "" };
    let measured = |value: Option<f64>, decimals: usize, unit: &str| {
        value.and_then(sound).map(|value| format!("{} {unit}", number(value, decimals)))
    };
    let machine = env.machine.as_ref();
    // What was not measured or kept has no row.
    let rows = [
        ("date", Some(env.date.clone())),
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
        ("processor", machine.and_then(|machine| machine.cpu.clone())),
        ("commit", commit),
        ("lathe", Some(env.lathe.clone())),
        ("wgpu", Some(env.wgpu.clone())),
        ("record schema", Some(record.schema_version.to_string())),
    ];
    let mut list = String::from("<dl class=\"environment\">\n");
    for (name, value) in rows {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        list.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", text(name), text(&value)));
    }
    list.push_str("</dl>\n");
    svg::figure("Environment", &list, "")
}
