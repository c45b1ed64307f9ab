//! Whole generations as tables: llama-bench's, and the suite's with all models side by side. The
//! same tables go to the terminal, to Markdown and to the HTML page.

use lathe_record::record::{
    Environment, GenerationTest, GenerationTests, Suite, SuiteConfig, SuiteModel, Verified, Watched,
};

use super::html::number;

/// Mark of a figure whose output was not verified.
const NOT_VERIFIED: &str = "not verified";

/// A table with a title and the meaning of its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Measured quantity, with the unit.
    pub title: String,
    /// Method of measurement.
    pub note: String,
    /// Names of the columns; those that begin with `>` hold figures.
    pub header: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// Name of a column, and whether it holds figures.
    pub fn columns(&self) -> impl Iterator<Item = (&str, bool)> {
        self.header.iter().map(|name| match name.strip_prefix('>') {
            Some(name) => (name, true),
            None => (name.as_str(), false),
        })
    }

    /// The table alone in Markdown, its columns of one width for a terminal.
    pub fn table(&self) -> String {
        let columns: Vec<_> = self.columns().map(|(name, right)| (escape(name), right)).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| escape(cell)).collect()).collect();
        let wide = |i: usize| {
            let cells = rows.iter().filter_map(|row| row.get(i)).chain([&columns[i].0]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..columns.len()).map(wide).collect();
        let line = |cells: &mut dyn Iterator<Item = &String>| {
            let padded = cells.zip(&columns).zip(&widths).map(|((cell, (_, right)), width)| {
                if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&mut columns.iter().map(|(name, _)| name));
        let rules = columns.iter().zip(&widths).map(|((_, right), width)| {
            let dashes = "-".repeat(width + 1);
            if *right { format!("{dashes}:") } else { format!("{dashes}-") }
        });
        text.push_str(&format!("|{}|\n", rules.collect::<Vec<_>>().join("|")));
        for row in &rows {
            text.push_str(&line(&mut row.iter()));
        }
        text
    }

    /// Title, table and note.
    pub fn markdown(&self) -> String {
        format!("### {}\n\n{}\n{}\n", self.title, self.table(), self.note)
    }
}

fn escape(text: &str) -> String {
    text.replace(char::is_control, " ").replace('|', "\\|").replace('<', "\\<")
}

/// Bytes as llama-bench shows them.
fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.2} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

/// A figure, a mark if its outputs were not verified, and its flags.
fn figure(text: String, verified: Option<Verified>, watched: &Watched) -> String {
    let unchecked = verified.is_none().then(|| NOT_VERIFIED.to_owned());
    let flags: Vec<String> =
        unchecked.into_iter().chain(watched.flags.iter().map(ToString::to_string)).collect();
    match flags.is_empty() {
        true => text,
        false => format!("{text} ({})", flags.join(", ")),
    }
}

/// Verification of several runs, in a sentence.
fn outputs(all: &[Option<Verified>]) -> String {
    let Some(verified) = all.iter().copied().collect::<Option<Vec<_>>>() else {
        return "Not verified: nothing was held against the reference.".into();
    };
    let positions = verified.iter().map(|v| v.positions).min().unwrap_or(0);
    let worst = verified.iter().map(|v| v.worst_nmse).fold(0.0, f64::max);
    let ties: usize = verified.iter().map(|v| v.ties).sum();
    let mut text = format!(
        "Outputs verified before a figure is kept: at least the first {positions} positions of \
         each run, of several sequences those of one, against the CPU reference (NMSE ≤ \
         {worst:.1e}), and the tokens of every timed run against the first run's."
    );
    let ends: Vec<f64> = verified.iter().filter_map(|v| v.end_nmse).collect();
    if !ends.is_empty() {
        let worst = ends.iter().copied().fold(0.0, f64::max);
        let which = match ends.len() == verified.len() {
            true => "The last logits of a run".to_owned(),
            false => format!("The last logits of {} of {} runs", ends.len(), verified.len()),
        };
        text.push_str(&format!(
            " {which} were held against those of its tokens run as a prompt, by other kernels \
             (NMSE ≤ {worst:.1e})."
        ));
    }
    if ties > 0 {
        text.push_str(&format!(
            " Of several sequences, {ties} choices are not those of the sequence alone after the \
             same tokens: its two largest logits lie closer than rounding."
        ));
    }
    text
}

/// The adapter, and a warning where its times say nothing.
pub fn machine(env: &Environment) -> String {
    let checks = &env.runtime_checks;
    let mut text =
        format!("{} ({}, {}), run-time checks {checks}", env.adapter, env.driver, env.backend);
    if let Some(commit) = &env.commit {
        let dirty = if env.dirty == Some(true) { " with changes" } else { "" };
        text.push_str(&format!(", commit {commit}{dirty}"));
    }
    text.push_str(&format!(", {}.", env.date));
    if env.software {
        text.push_str(" A software adapter: these times say nothing about a GPU.");
    }
    text
}

/// llama-bench's table.
pub fn tests(run: &GenerationTests, env: &Environment) -> Grid {
    let header = vec!["model", ">size", ">params", "backend", ">steps/submit", ">test", ">t/s"];
    let rows = run.tests.iter().map(|test| {
        // Files of one kind are told apart by their names.
        let alike = |other: &GenerationTest| {
            other.model.model_type == test.model.model_type
                && other.model.model_filename != test.model.model_filename
        };
        let mut model = test.model.model_type.clone();
        if run.tests.iter().any(alike) {
            model.push_str(&format!(" ({})", test.model.file()));
        }
        let n_params = test.model.model_n_params as f64;
        let speed = format!("{} ± {}", number(test.avg_ts, 2), number(test.stddev_ts, 2));
        let cells = vec![
            model,
            size(test.model.model_size),
            if n_params >= 1e9 {
                format!("{:.2} B", n_params / 1e9)
            } else {
                format!("{:.2} M", n_params / 1e6)
            },
            env.backend.clone(),
            test.steps_per_submit.map_or_else(|| "-".into(), |n| n.to_string()),
            test.test.clone(),
            figure(speed, test.verified, &test.watched),
        ];
        cells
    });
    let verified: Vec<_> = run.tests.iter().map(|test| test.verified).collect();
    Grid {
        title: "Prompts and generation, tok/s".into(),
        note: format!(
            "Mean ± standard deviation over {} repetitions, wall clock; every token is chosen on the \
             device and read back. Beside llama-bench stands 1 step a submission; more steps a \
             submission is the faster setting. Prompts: {}. {}",
            run.tests.iter().map(|test| test.samples_ns.len()).max().unwrap_or(0),
            run.prompts,
            outputs(&verified)
        ),
        header: header.into_iter().map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

type Cell = fn(&SuiteConfig) -> String;

/// Title, note, and name and content of each model's columns.
type Figures<'a> = (&'a str, &'a str, &'a [(&'a str, Cell)]);

/// The suite's tables, models side by side.
pub fn suite(run: &Suite) -> Vec<Grid> {
    let steps = run.steps_per_submit;
    let fast = format!("Median of {}, {steps} steps a submission.", runs(run));
    let single = format!("Median of {}, 1 step a submission, each token read back.", runs(run));
    let steps_of = "All steps of all runs, 1 step a submission: each has a time of its own.";
    let tables: [Figures<'_>; 7] = [
        ("End-to-end throughput (tok/s)", &fast, &[("", |c| number(c.e2e_tok_s, 1))]),
        ("Decode throughput (tok/s)", &fast, &[("", |c| number(c.decode_tok_s, 1))]),
        (
            "End-to-end throughput, one step a submission (tok/s)",
            &single,
            &[("", |c| number(c.one_step_e2e_tok_s, 1))],
        ),
        (
            "Decode throughput, one step a submission (tok/s)",
            &single,
            &[("", |c| number(c.one_step_decode_tok_s, 1))],
        ),
        (
            "Per-step decode latency, one step a submission (ms)",
            steps_of,
            &[("P50", |c| number(c.p50_ms, 3)), ("P95", |c| number(c.p95_ms, 3))],
        ),
        (
            "TTFT (ms) and prefill (tok/s)",
            &fast,
            &[("TTFT", |c| number(c.ttft_ms, 1)), ("prefill", |c| number(c.prefill_tok_s, 0))],
        ),
        (
            "KV cache (MB, 10⁶ bytes) and peak device memory (GB, 10⁹ bytes)",
            "Weights, caches and everything else that the run allocates on the device.",
            &[
                ("cache", |c| number(c.kv_cache_bytes as f64 / 1e6, 1)),
                ("peak", |c| number(c.gpu_memory_bytes as f64 / 1e9, 2)),
            ],
        ),
    ];
    let single_only = steps == 1;
    let tables = tables.into_iter().enumerate();
    let tables = tables.filter(|(i, _)| !(single_only && (2..4).contains(i)));
    tables.map(|(_, (title, note, columns))| grid(run, title, note, columns)).collect()
}

fn grid(run: &Suite, title: &str, note: &str, columns: &[(&str, Cell)]) -> Grid {
    let mut header = vec!["config".to_owned()];
    for model in &run.models {
        for (name, _) in columns {
            let model = label(model);
            header.push(format!(">{}", [model, name].join(" ").trim_end()));
        }
    }
    let row = |name: &&str| {
        let mut row = vec![lengths(run, name)];
        for model in &run.models {
            let config = model.configs.get(*name);
            let shown = |c: &SuiteConfig, of: &Cell| figure(of(c), c.verified, &c.watched);
            let cell = |of: &Cell| config.map_or_else(|| "–".into(), |c| shown(c, of));
            row.extend(columns.iter().map(|(_, of)| cell(of)));
        }
        row
    };
    let rows = run.config_names().iter().map(row).collect();
    Grid { title: title.into(), note: note.into(), header, rows }
}

/// A configuration with its lengths: `short 64/64`.
fn lengths(run: &Suite, name: &str) -> String {
    let config = run.models.iter().find_map(|m| m.configs.get(name));
    config.map_or_else(
        || name.to_owned(),
        |c| format!("{name} {}/{}", c.prompt_tokens, c.generated_tokens),
    )
}

/// The file's name without its ending.
fn label(model: &SuiteModel) -> &str {
    model.model.file().trim_end_matches(".gguf")
}

fn runs(run: &Suite) -> String {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!("{} after {}", plural(run.repetitions, "run"), plural(run.warm_ups, "warm-up"))
}

/// Note on all tables of a suite: its draws and its verification.
pub fn suite_note(run: &Suite) -> String {
    let configs = run.models.iter().flat_map(|model| model.configs.values());
    let verified: Vec<_> = configs.map(|config| config.verified).collect();
    format!(
        "Prompts: {}; draws: seed {}. Every run begins with cleared caches and goes on to its last \
         token. {}",
        run.prompts,
        run.seed,
        outputs(&verified)
    )
}

/// The suite as Markdown to paste.
pub fn suite_markdown(run: &Suite, env: &Environment) -> String {
    let mut text = format!(
        "## Generation suite, {} tier\n\n{}\n{}\n\n",
        run.tier,
        machine(env),
        suite_note(run)
    );
    let grids: Vec<_> = suite(run).iter().map(Grid::markdown).collect();
    text.push_str(&grids.join("\n"));
    text
}

#[cfg(test)]
pub(super) mod tests;
