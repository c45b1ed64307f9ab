//! The `lathe` command: arguments in, one call, plain data out. The only place that formats
//! errors and chooses exit codes.

#![warn(clippy::print_stdout, reason = "everything is written through `out`, which sees errors")]

#[macro_use]
mod out;

mod ab;
mod bench;
mod check;
mod compare;
mod decode;
mod diff;
mod doctor;
mod generation;
mod help;
mod inspect;
mod list;
mod map;
mod memory;
mod merge;
mod perplexity;
mod processes;
mod quantize;
mod report;
mod sampling;
mod shapes;
mod show;
mod suite;
mod supervised;
mod synth;
mod table;
mod tune;
mod validate;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, FromArgMatches, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lathe_harness::data::record::Record;
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::{Checks, Gpu};
use lathe_harness::judge;
use lathe_harness::plan::user::{files_of, is_file};
use lathe_harness::plan::{PlanError, Subject};
use lathe_kernels::{Kernel, KernelVariant, Problem};
use out::Stream;
use serde::Serialize;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Workbench for WGSL language-model decode kernels.
#[derive(Debug, Parser)]
#[command(name = "lathe", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 good; 1 a check failed or a slowdown is confirmed; 2 usage; \
     3 no adapter, feature or memory; 4 device lost or timed out; 5 bad model file; 6 inconclusive";

#[derive(Clone, Debug, Args)]
struct Global {
    /// Adapter by index or part of its name (also LATHE_ADAPTER)
    #[arg(long, global = true, value_name = "NAME|INDEX", help_heading = "Device")]
    adapter: Option<String>,
    /// Print exactly one JSON document on stdout
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Say more on stderr; twice for debugging
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    verbose: u8,
    /// Compile shaders with wgpu's run-time checks
    #[arg(long, global = true, help_heading = "Device")]
    runtime_checks: bool,
    /// Compile your own files without wgpu's run-time checks, as built-in kernels are: what they
    /// access out of bounds is then read, written, or ends the driver
    #[arg(long, global = true, conflicts_with = "runtime_checks", help_heading = "Device")]
    unchecked_files: bool,
    /// Refuse models that need more device memory than this, such as 512MiB or 7.5GB, before they
    /// are loaded; what the device has free is a limit always
    #[arg(long, global = true, value_name = "BYTES", value_parser = memory::size, help_heading = "Device")]
    memory_limit: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show adapters, features, limits; measure the bandwidth
    Doctor(doctor::Opts),
    /// List kernels and variants and what each needs
    List(list::Opts),
    /// Pass every variant through naga and each back end's writer
    Validate(validate::Opts),
    /// Print what the device compiles of a variant
    Show(show::Opts),
    /// Begin the mapping of a file that was written for another engine
    Map(map::Opts),
    /// Sweep correctness against the reference
    Check(check::Opts),
    /// Time kernels, cold and warm; `bench decode` times prompts and generation
    Bench(bench::Opts),
    /// Time generation by up to seven configurations, models side by side
    Suite(suite::Opts),
    /// Compare two variants in one run, with a verdict
    Ab(ab::Opts),
    /// Compare saved runs; fails only on a confirmed slowdown or a case that became wrong
    Compare(compare::Opts),
    /// Make one offline HTML page of saved runs
    Report(report::Opts),
    /// Join records, or stores of tuned choices, of many runs and machines
    Merge(merge::Opts),
    /// Search the fastest variant and constants, checking every candidate first
    Tune(tune::Opts),
    #[command(hide = true)]
    TuneCandidates(tune::CandidatesOpts),
    /// Write a deterministic random checkpoint of a real shape
    Synth(synth::Opts),
    /// Write a checkpoint as GGUF in another weight type
    Quantize(quantize::Opts),
    /// Show what a checkpoint holds and whether it can be decoded
    Inspect(inspect::Opts),
    /// Decode with a checkpoint
    Decode(decode::Opts),
    /// Find the first operation at which GPU and CPU disagree
    Diff(diff::Opts),
    /// Measure how well a checkpoint predicts a text, and how far it is from another one
    Perplexity(perplexity::Opts),
}

impl Global {
    fn open(&self) -> Result<Gpu> {
        let checks = match (self.runtime_checks, self.unchecked_files) {
            (true, _) => Checks::Everywhere,
            (_, true) => Checks::Nowhere,
            _ => Checks::Files,
        };
        let mut gpu = Gpu::open(self.adapter.as_deref(), checks)?;
        gpu.memory_limit = self.memory_limit;
        Ok(gpu)
    }

    /// A bar on stderr while work of `total` goes on; nothing where stderr is no terminal.
    fn progress(&self, total: u64, what: &str, bytes: bool) -> ProgressBar {
        let target = if Stream::Stderr.is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let template = if bytes {
            "{msg} {wide_bar} {bytes}/{total_bytes} {eta}"
        } else {
            "{msg} {wide_bar} {pos}/{len} {eta}"
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        ProgressBar::with_draw_target(Some(total), target)
            .with_style(style)
            .with_message(what.to_owned())
    }

    /// Prints a report: with `--json` as the only document, else as `print` does.
    fn print(&self, report: &impl Serialize, print: impl FnOnce()) {
        match self.json {
            true => out::json(report),
            false => print(),
        }
    }

    /// Does work that tells the bytes done and their total, beside a bar that shows them.
    fn by_bytes<T, E>(
        &self,
        what: &str,
        work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, E>,
    ) -> Result<T, E> {
        let bar = self.progress(0, what, true);
        let done = work(&mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        })?;
        bar.finish_and_clear();
        Ok(done)
    }
}

/// The `lathe` program: parses its command line, runs it, and reports errors on stderr.
pub fn main() -> ExitCode {
    name_runtime_folder();
    let args: Vec<OsString> = std::env::args_os().collect();
    match parse(&args) {
        Ok(cli) => supervised::run(&args, || {
            log(&cli.global).init();
            ExitCode::from(work(cli))
        }),
        Err(code) => ExitCode::from(code),
    }
}

/// Result of a command that ran in this process.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code.
    pub code: u8,
    /// Everything that it wrote to stdout.
    pub stdout: Vec<u8>,
    /// Everything that it wrote to stderr.
    pub stderr: Vec<u8>,
}

/// Runs a command in this process, `lathe` itself being the first argument. A file of the user's is
/// compiled here too, not in a process of its own.
pub fn run(args: &[OsString]) -> Finished {
    let (code, stdout, stderr) = out::captured(|| match parse(args) {
        Ok(cli) => tracing::subscriber::with_default(log(&cli.global), || work(cli)),
        Err(code) => code,
    });
    Finished { code, stdout, stderr }
}

/// The parsed command line; or the exit code, after help or what is wrong was printed.
fn parse(args: &[OsString]) -> Result<Cli, u8> {
    // llama-bench's `-pg` is one option; to clap it would be `-p` with the value `g`.
    let args = args.iter().map(|arg| if arg == "-pg" { "--pg".into() } else { arg.clone() });
    let parsed = help::command()
        .try_get_matches_from(args)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|e| {
        let (stream, code) = match e.use_stderr() {
            true => (Stream::Stderr, 2),
            // Help, or the version.
            false => (Stream::Stdout, 0),
        };
        let said = match stream.is_terminal() && out::colours() {
            true => e.render().ansi().to_string(),
            false => e.render().to_string(),
        };
        out::write(stream, &said);
        code
    })
}

/// Names a folder where Mesa's drivers look for one: without it they complain on stderr at every
/// device. Nothing is written there.
fn name_runtime_folder() {
    const VARIABLE: &str = "XDG_RUNTIME_DIR";
    let there = std::env::var_os(VARIABLE).is_some_and(|folder| Path::new(&folder).is_dir());
    if cfg!(target_os = "linux") && !there {
        // SAFETY: the first thing that the command does; no other thread runs yet.
        unsafe { std::env::set_var(VARIABLE, std::env::temp_dir()) };
    }
}

/// Prints events of the library on stderr, as many as the command line or `LATHE_LOG` asks for.
fn log(global: &Global) -> impl tracing::Subscriber + Send + Sync + 'static {
    let ours = |level| {
        let crates = ["lathe_cli", "lathe_decode", "lathe_device", "lathe_model", "lathe_record"];
        Targets::new().with_targets(crates.map(|name| (name, level)))
    };
    let asked = match global.verbose {
        0 => Targets::new().with_default(LevelFilter::WARN),
        1 => ours(LevelFilter::INFO).with_default(LevelFilter::WARN),
        _ => ours(LevelFilter::DEBUG).with_default(LevelFilter::INFO),
    };
    let variable = std::env::var("LATHE_LOG").ok().and_then(|filter| filter.parse().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| Stream::Stderr)
        .with_ansi(out::colours() && Stream::Stderr.is_terminal())
        .without_time()
        .with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(variable.unwrap_or(asked)))
}

/// Runs a command, says what went wrong, and returns the exit code.
fn work(cli: Cli) -> u8 {
    let global = &cli.global;
    let done = match cli.command {
        Command::Doctor(opts) => doctor::run(global, &opts),
        Command::List(opts) => list::run(global, &opts),
        Command::Validate(opts) => validate::run(global, &opts),
        Command::Show(opts) => show::run(global, &opts),
        Command::Map(opts) => map::run(global, &opts),
        Command::Check(opts) => check::run(global, &opts),
        Command::Bench(opts) => bench::run(global, &opts),
        Command::Suite(opts) => suite::run(global, &opts),
        Command::Ab(opts) => ab::run(global, &opts),
        Command::Compare(opts) => compare::run(global, &opts),
        Command::Report(opts) => report::run(global, &opts),
        Command::Merge(opts) => merge::run(global, &opts),
        Command::Tune(opts) => tune::run(global, &opts),
        Command::TuneCandidates(opts) => tune::candidates(global, &opts),
        Command::Synth(opts) => synth::run(global, &opts),
        Command::Quantize(opts) => quantize::run(global, &opts),
        Command::Inspect(opts) => inspect::run(global, &opts),
        Command::Decode(opts) => decode::run(global, &opts),
        Command::Diff(opts) => diff::run(global, &opts),
        Command::Perplexity(opts) => perplexity::run(global, &opts),
    };
    match done {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("lathe: {}", out::escaped(&e.to_string()));
            e.exit_code()
        }
    }
}

/// Parses a whole number within bounds; for clap.
fn within<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (LEAST..=MOST).contains(&n) => Ok(n),
        _ => Err(format!("expected a whole number from {LEAST} to {MOST}")),
    }
}

/// A count for the command line: from 0 to 2^24, which is more than any context holds.
fn count(text: &str) -> Result<usize, String> {
    within::<0, { 1 << 24 }>(text)
}

/// Tokens of the largest chunk of a prompt: 0, or a power of two that tensors have room for.
fn chunk(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(0) => Ok(0),
        Ok(n) if n.is_power_of_two() && (16..=8192).contains(&n) => Ok(n),
        _ => Err("expected 0 or a power of two from 16 to 8192".into()),
    }
}

/// The file to watch; none where that is not asked for.
fn watched<'a>(
    global: &Global,
    is_asked: bool,
    file: Option<&'a Path>,
) -> Result<Option<&'a Path>> {
    let refuse = |why: &str| Err(Error::Usage(why.into()));
    match file {
        _ if !is_asked => Ok(None),
        _ if global.json => refuse("--watch prints again and again, --json one document"),
        None => refuse("--watch needs a file of yours: --wgsl FILE"),
        file => Ok(file),
    }
}

/// Refuses `what` of a software adapter, unless that is allowed; `does` says what then happens.
fn refuse_software(gpu: &Gpu, allowed: bool, what: &str, does: &str) -> Result<()> {
    if allowed || !gpu.adapter.software {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: what.into(),
        adapter: gpu.adapter.name.clone(),
        reason: format!(
            "a software adapter says nothing about a GPU; --allow-software {does} it anyway"
        ),
    })
}

/// Refuses to write a record where something is, before anything is run.
fn refuse_overwriting(record: Option<&PathBuf>) -> Result<()> {
    match record.filter(|path| path.exists()) {
        None => Ok(()),
        Some(path) => {
            let path = path.display();
            Err(Error::Usage(format!("{path} exists; a record is not overwritten")))
        }
    }
}

/// Saves and prints a record. What was measured is said even where it cannot be saved.
fn save_and_print(record: &Record, path: Option<&Path>, print: impl FnOnce()) -> Result<()> {
    let saved = path.map(|path| record.write(path).map(|()| path));
    print();
    if let Some(saved) = saved {
        eprintln!("saved {}", saved?.display());
    }
    Ok(())
}

/// Writes a page. One can be made again from what it shows; only another kind of file is kept.
fn write_page(path: &Path, page: &str) -> Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| m.len() > 0) {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        if !old.starts_with("<!doctype html>") && !old.starts_with("<!DOCTYPE html>") {
            return Err(Error::Usage(format!(
                "{}: exists and is no HTML page; remove it first",
                path.display()
            )));
        }
        eprintln!("lathe: {} is replaced", path.display());
    }
    files::replace(path, page.as_bytes()).map_err(Error::io(path))
}

/// `VARIANT`, `FILE.wgsl` or `VARIANT=FILE.wgsl`: a variant, or the file that stands in its place.
/// Alone a file stands in that of the first.
fn subject(kernel: &'static Kernel, text: &str) -> Result<Subject> {
    let variant = |name: &str| -> Result<&'static KernelVariant> {
        let mut found = named(Some(&format!("{}/{name}", kernel.name)))?;
        Ok(found.swap_remove(0).1.swap_remove(0))
    };
    if !is_file(text) {
        return Ok(Subject::of(kernel, variant(text)?));
    }
    match text.split_once('=') {
        // A file's own name may have one.
        Some((name, file)) if !Path::new(text).exists() => {
            compiled(kernel, variant(name)?, Path::new(file))
        }
        _ => compiled(kernel, &kernel.variants[0], Path::new(text)),
    }
}

/// A user's file in the place of a variant.
fn compiled(
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    file: &Path,
) -> Result<Subject> {
    Subject::compile(file, kernel, variant).map_err(PlanError::into_usage)
}

/// Checks a file on shapes other than those that are to be timed, unless it is for these alone.
/// Returns what is wrong by a little there, where that is let pass.
fn check_others(
    gpu: &std::sync::Arc<Gpu>,
    file: &mut Subject,
    timed: &[Problem],
) -> Result<Option<String>> {
    if file.one_shape || file.path().is_none() {
        return Ok(None);
    }
    let others = judge::check::check_others(gpu, file, timed)?;
    file.one_shape = others.checked == 0;
    // A file that does not take what is to be timed is said to be unavailable there.
    if file.one_shape && timed.iter().any(|problem| file.plan(problem, &gpu.caps).is_ok()) {
        eprintln!(
            "lathe: {}: it takes no other shape to be checked on; the result says `one shape`",
            out::escaped(&file.name())
        );
    }
    Ok(others.outside)
}

/// Runs `work`, and where there is a file to watch again whenever one is saved that it is made of,
/// until interrupted. An error is then shown and waits for the next save.
fn watch(watched: Option<&Path>, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let Some(watched) = watched else { return work() };
    let stamp = |path: &PathBuf| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    loop {
        // What a mapping names may be another file after each save.
        let files = files_of(watched);
        let stamps = || files.iter().map(stamp).collect::<Vec<_>>();
        let seen = stamps();
        if let Err(e) = work() {
            if matches!(e, Error::DeviceLost { .. }) {
                return Err(e);
            }
            eprintln!("lathe: {}", out::escaped(&e.to_string()));
        }
        eprintln!("watching {}", out::escaped(&watched.display().to_string()));
        // A file that is being replaced is not there for a moment.
        while stamps() == seen || !watched.exists() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

/// Names that a mistyped one may have meant, or all that there are.
fn meant(name: &str, known: &[&str]) -> String {
    /// Likeness of two names, from 0 to 1, at which one is taken for the other.
    const ALIKE: f64 = 0.75;
    let alike = |known: &&str| strsim::normalized_damerau_levenshtein(name, known);
    let mut near: Vec<_> = known.iter().filter(|known| alike(known) >= ALIKE).collect();
    near.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
    let near: Vec<_> = near.iter().take(3).map(|name| format!("`{name}`")).collect();
    match near.is_empty() {
        false => format!("did you mean {}?", near.join(" or ")),
        true => format!("there are {}", known.join(", ")),
    }
}

/// A kernel and the variants of it that were named.
type Named = (&'static Kernel, Vec<&'static KernelVariant>);

/// The kernels and variants that `KERNEL`, `KERNEL/VARIANT` or nothing names.
fn named(target: Option<&str>) -> Result<Vec<Named>> {
    let all = |k: &'static Kernel| (k, k.variants.iter().collect::<Vec<_>>());
    let Some(target) = target else {
        return Ok(lathe_kernels::kernels().iter().map(all).collect());
    };
    if is_file(target) {
        return Err(Error::Usage(format!(
            "{target} is a file and no kernel: name the kernel in whose place it stands, and the \
             file with --wgsl; `lathe validate` takes any WGSL"
        )));
    }
    let (kernel, variant) = match target.split_once('/') {
        Some((k, v)) => (k, Some(v)),
        None => (target, None),
    };
    let kernel = lathe_kernels::kernel(kernel).ok_or_else(|| {
        let known: Vec<_> = lathe_kernels::kernels().iter().map(|k| k.name).collect();
        Error::Usage(format!("no kernel `{kernel}`; {}", meant(kernel, &known)))
    })?;
    let Some(variant) = variant else { return Ok(vec![all(kernel)]) };
    let found = kernel.variant(variant).ok_or_else(|| {
        let known: Vec<_> = kernel.variants.iter().map(|v| v.name).collect();
        Error::Usage(format!(
            "kernel {} has no variant `{variant}`; {}",
            kernel.name,
            meant(variant, &known)
        ))
    })?;
    Ok(vec![(kernel, vec![found])])
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn a_name_that_is_near_is_offered_and_others_are_listed() {
        let known = ["gemv", "gemv_q", "rope"];
        assert_eq!(meant("gemmv", &known), "did you mean `gemv`?");
        assert_eq!(meant("gemvq", &known), "did you mean `gemv_q` or `gemv`?");
        assert_eq!(meant("softmax", &known), "there are gemv, gemv_q, rope");
    }
}
