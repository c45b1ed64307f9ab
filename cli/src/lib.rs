//! The `lathe` command: arguments in, one call, plain data out. The only place that formats
//! errors and chooses exit codes.

#![warn(clippy::print_stdout, reason = "everything is written through `out`, which sees errors")]

#[macro_use]
mod out;

mod args;
mod commands;
mod global;
mod help;
mod model;
mod processes;
mod profile;
mod saved;
mod table;
mod wgsl;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use commands::Command;
use global::Global;
use out::Stream;
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

/// The `lathe` program: parses its command line, runs it, and reports errors on stderr.
pub fn main() -> ExitCode {
    name_runtime_folder();
    let args: Vec<OsString> = std::env::args_os().collect();
    match parse(&args) {
        Ok(cli) => on_large_stack(|| {
            log(&cli.global).init();
            ExitCode::from(work(&cli))
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
        Ok(cli) => tracing::subscriber::with_default(log(&cli.global), || work(&cli)),
        Err(code) => code,
    });
    Finished { code, stdout, stderr }
}

/// The parsed command line; or the exit code, after help or an error was printed.
fn parse(args: &[OsString]) -> Result<Cli, u8> {
    // llama-bench's `-pg` is one option; to clap it would be `-p` with the value `g`.
    let args = args.iter().map(|arg| if arg == "-pg" { "--pg".into() } else { arg.clone() });
    let parsed = help::with_examples(Cli::command())
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
fn work(cli: &Cli) -> u8 {
    match cli.command.run(&cli.global) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("lathe: {}", out::escaped(&e.to_string()));
            e.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_and_they_parse() {
        let command = help::with_examples(Cli::command());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let help = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("lathe {}", sub.get_name())), "{}", sub.get_name());
        }
        for (line, _) in help::EXAMPLES {
            let words = std::iter::once("lathe").chain(line.split(' '));
            command.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }
}
