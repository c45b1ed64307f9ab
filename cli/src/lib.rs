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
mod show;
mod suite;
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
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::files_of;
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

    /// Does work that tells the bytes done and their total, with a progress bar.
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
        Ok(cli) => on_large_stack(|| {
            log(&cli.global).init();
            ExitCode::from(work(cli))
        }),
        Err(code) => ExitCode::from(code),
    }
}

/// Runs a command on a large stack, of which only used pages take memory: front ends walk the
/// nested expressions of a user's file by recursion.
fn on_large_stack(work: impl FnOnce() -> ExitCode + Send) -> ExitCode {
    const STACK: usize = 1 << 29;
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        match worker.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(code)) => code,
            // It panicked, and has said so.
            Ok(Err(_)) => ExitCode::from(101),
            Err(e) => {
                eprintln!("lathe: cannot start a thread: {e}");
                ExitCode::from(4)
            }
        }
    })
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

/// Runs a command in this process, `lathe` itself being the first argument.
pub fn run(args: &[OsString]) -> Finished {
    let (code, stdout, stderr) = out::captured(|| match parse(args) {
        Ok(cli) => tracing::subscriber::with_default(log(&cli.global), || work(cli)),
        Err(code) => code,
    });
    Finished { code, stdout, stderr }
}

/// The parsed command line; or the exit code, after help or an error was printed.
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

/// Runs a command, prints its error if there is one, and returns the exit code.
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
    wgsl: Option<&'a Path>,
) -> Result<Option<&'a Path>> {
    let refuse = |why: &str| Err(Error::Usage(why.into()));
    match (is_asked, wgsl) {
        (false, _) => Ok(None),
        (true, _) if global.json => refuse("--watch prints again and again, --json one document"),
        (true, None) => refuse("--watch needs a file of yours: --wgsl FILE"),
        (true, file) => Ok(file),
    }
}

/// Kernels and variants that are named, or all, with a file in the place of the only one's first
/// variant.
fn targets(names: &[String], file: Option<&Path>) -> Result<Vec<Target>> {
    let mut targets = match names {
        [] => Target::parse(None)?,
        names => names.iter().map(|name| Target::one(name)).collect::<Result<_>>()?,
    };
    match (file, targets.len()) {
        (None, _) => Ok(targets),
        (Some(file), 1) => Ok(vec![targets.swap_remove(0).with_file(file)?]),
        _ => Err(Error::Usage("--wgsl needs a KERNEL".into())),
    }
}

/// Refuses `what` of a software adapter unless that is allowed; `does` completes the message.
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

/// Saves and prints a record. Its figures are printed even if it cannot be saved.
fn save_and_print(record: &Record, path: Option<&Path>, print: impl FnOnce()) -> Result<()> {
    let saved = path.map(|path| record.write(path).map(|()| path));
    print();
    if let Some(saved) = saved {
        eprintln!("saved {}", saved?.display());
    }
    Ok(())
}

/// Writes a page. A page is overwritten, since it can be made again; another kind of file is kept.
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

/// Runs `work`, and where there is a file to watch again whenever it is saved, or one that it is
/// made of, until interrupted. An error is then shown and waits for the next save.
fn watch(watched: Option<&Path>, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let Some(watched) = watched else { return work() };
    let shown = watched.display().to_string();
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
        eprintln!("watching {}", out::escaped(&shown));
        // A file that is being replaced is not there for a moment.
        while stamps() == seen || !watched.exists() {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}
