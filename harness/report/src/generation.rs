//! Whole generations as tables: llama-bench's, and the suite's with all models side by side. The
//! same tables go to the terminal, to Markdown and to the HTML page.

use lathe_record::record::{
    Decoded, Environment, GenerationTest, GenerationTests, MeasuredModel, Suite, SuiteConfig,
    Verified,
};

use crate::markup::{number, plural};
use crate::table::Table;

/// Bytes as llama-bench shows them.
fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.2} MiB") } else { format!("{:.2} GiB", mib / 1024.0) }
}

/// A figure, a mark if its outputs were not verified, and its flags.
fn figure(text: String, of: &Decoded) -> String {
    let unchecked = of.verified.is_none().then(|| "not verified".to_owned());
    let flags = unchecked.into_iter().chain(of.watched.flags.iter().map(ToString::to_string));
    match flags.collect::<Vec<_>>().join(", ").as_str() {
        "" => text,
        flags => format!("{text} ({flags})"),
    }
}

/// Verification of several runs, in a sentence.
fn outputs(all: &[Option<Verified>]) -> String {
    let verified = all.iter().copied().collect::<Option<Vec<_>>>().unwrap_or_default();
    let Some(worst) = verified.iter().copied().reduce(Verified::worse) else {
        return "Not verified: nothing was held against the reference.".into();
    };
    let mut text = format!(
        "Outputs verified before a figure is kept: at least the first {} positions of each run, of \
         several sequences those of one, against the CPU reference (NMSE ≤ {:.1e}), and the tokens \
         of every timed run against the first run's.",
        worst.positions, worst.worst_nmse
    );
    if let Some(nmse) = worst.end_nmse {
        let ends = verified.iter().filter(|v| v.end_nmse.is_some()).count();
        let which = match ends == verified.len() {
            true => "a run".to_owned(),
            false => format!("{ends} of {} runs", verified.len()),
        };
        text.push_str(&format!(
            " The last logits of {which} were held against those of its tokens run as a prompt, by \
             other kernels (NMSE ≤ {nmse:.1e})."
        ));
    }
    let ties: usize = verified.iter().map(|v| v.ties).sum();
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
pub fn tests(run: &GenerationTests, env: &Environment) -> Table {
    let columns = ["model", ">size", ">params", "backend", ">steps/submit", ">test", ">t/s"];
    let mut table = Table::new("Prompts and generation, tok/s", columns);
    for test in &run.tests {
        let MeasuredModel { model_type, model_n_params, model_size, .. } = &test.model;
        // Files of one kind are told apart by their names.
        let is_alike = |other: &GenerationTest| {
            &other.model.model_type == model_type && other.model.file() != test.model.file()
        };
        let model = match run.tests.iter().any(is_alike) {
            true => format!("{model_type} ({})", test.model.file()),
            false => model_type.clone(),
        };
        let params = *model_n_params as f64;
        let speed = format!("{} ± {}", number(test.avg_ts, 2), number(test.stddev_ts, 2));
        table.rows.push(vec![
            model,
            size(*model_size),
            match params >= 1e9 {
                true => format!("{:.2} B", params / 1e9),
                false => format!("{:.2} M", params / 1e6),
            },
            env.backend.clone(),
            test.steps_per_submit.map_or_else(|| "-".into(), |n| n.to_string()),
            test.test.clone(),
            figure(speed, &test.of),
        ]);
    }
    let verified: Vec<_> = run.tests.iter().map(|test| test.of.verified).collect();
    table.note = format!(
        "Mean ± standard deviation over {} repetitions, wall clock; every token is chosen on the \
         device and read back. Beside llama-bench stands 1 step a submission; more steps a \
         submission is the faster setting. Prompts: {}. {}",
        run.tests.iter().map(|test| test.samples_ns.len()).max().unwrap_or(0),
        run.prompts,
        outputs(&verified)
    );
    table
}

type Cell = fn(&SuiteConfig) -> String;

/// Title, note, and name and content of each model's columns.
type Figures<'a> = (&'a str, &'a str, &'a [(&'a str, Cell)]);

/// The suite's tables, models side by side.
pub fn suite(run: &Suite) -> Vec<Table> {
    let steps = run.steps_per_submit;
    let runs = plural(run.repetitions, "run") + " after " + &plural(run.warm_ups, "warm-up");
    let fast = format!("Median of {runs}, {steps} steps a submission.");
    let single = format!("Median of {runs}, 1 step a submission, each token read back.");
    let steps_of = "All steps of all runs, 1 step a submission: each has a time of its own.";
    let memory = "Weights, caches and everything else that the run allocates on the device.";
    let end_to_end = "End-to-end throughput (tok/s)";
    let end_to_end_single = "End-to-end throughput, one step a submission (tok/s)";
    let decode_single = "Decode throughput, one step a submission (tok/s)";
    let latency = "Per-step decode latency, one step a submission (ms)";
    let of_memory = "KV cache (MB, 10⁶ bytes) and peak device memory (GB, 10⁹ bytes)";
    let mut tables: Vec<Figures<'_>> = vec![
        (end_to_end, &fast, &[("", |c| number(c.e2e_tok_s, 1))]),
        ("Decode throughput (tok/s)", &fast, &[("", |c| number(c.decode_tok_s, 1))]),
        (end_to_end_single, &single, &[("", |c| number(c.one_step_e2e_tok_s, 1))]),
        (decode_single, &single, &[("", |c| number(c.one_step_decode_tok_s, 1))]),
        (latency, steps_of, &[("P50", |c| number(c.p50_ms, 3)), ("P95", |c| number(c.p95_ms, 3))]),
        (
            "TTFT (ms) and prefill (tok/s)",
            &fast,
            &[("TTFT", |c| number(c.ttft_ms, 1)), ("prefill", |c| number(c.prefill_tok_s, 0))],
        ),
        (
            of_memory,
            memory,
            &[
                ("cache", |c| number(c.of.kv_cache_bytes as f64 / 1e6, 1)),
                ("peak", |c| number(c.of.gpu_memory_bytes as f64 / 1e9, 2)),
            ],
        ),
    ];
    if steps == 1 {
        // One setting alone is not shown twice.
        tables.drain(2..4);
    }
    let tables = tables.into_iter();
    tables.map(|(title, note, columns)| side_by_side(run, title, note, columns)).collect()
}

fn side_by_side(run: &Suite, title: &str, note: &str, columns: &[(&str, Cell)]) -> Table {
    let mut names = vec!["config".to_owned()];
    for model in &run.models {
        let model = model.model.file().trim_end_matches(".gguf");
        names.extend(columns.iter().map(|(name, _)| format!(">{model} {name}").trim_end().into()));
    }
    let mut table = Table::new(title, names);
    for name in run.config_names() {
        let configs = || run.models.iter().map(|model| model.configs.get(name));
        let lengths = configs().flatten().next();
        let lengths = lengths.map(|c| format!(" {}/{}", c.prompt_tokens, c.generated_tokens));
        let mut row = vec![name.to_owned() + &lengths.unwrap_or_default()];
        for config in configs() {
            row.extend(columns.iter().map(|(_, of)| match config {
                Some(c) => figure(of(c), &c.of),
                None => "–".into(),
            }));
        }
        table.rows.push(row);
    }
    table.note = note.into();
    table
}

/// Note on all tables of a suite: its draws and its verification.
pub fn suite_note(run: &Suite) -> String {
    let configs = run.models.iter().flat_map(|model| model.configs.values());
    let verified: Vec<_> = configs.map(|config| config.of.verified).collect();
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
    let tables: Vec<_> = suite(run).iter().map(Table::markdown).collect();
    text.push_str(&tables.join("\n"));
    text
}

#[cfg(test)]
pub(super) mod tests;
