//! The commands: each takes its options, makes one call of the library and prints the outcome.

mod ab;
mod bench;
mod chat;
mod check;
mod compare;
mod decode;
mod diff;
mod doctor;
mod export_web;
mod inspect;
mod list;
mod map;
mod merge;
mod perplexity;
mod quantize;
mod report;
mod sanitize;
mod show;
mod suite;
mod synth;
mod tokenize;
mod tune;
mod validate;

use clap::Subcommand;
use lathe_harness::error::Result;

use crate::global::Global;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
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
    /// Run kernels in an interpreter that finds races, unwritten memory and divergence
    Sanitize(sanitize::Opts),
    /// Time kernels, cold and warm; `bench decode` times prompts and generation
    Bench(bench::Opts),
    /// Time generation by up to seven configurations, models side by side
    Suite(suite::Opts),
    /// Compare two variants in one run, with a verdict
    Ab(ab::Opts),
    /// Write checks, benchmarks and models for any WebGPU engine, with the page that runs them
    ExportWeb(export_web::Opts),
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
    /// Converse with a checkpoint, a line of stdin a turn
    Chat(chat::Opts),
    /// Show the tokens of a text, or the text of tokens, without the weights
    Tokenize(tokenize::Opts),
    /// Find the first operation at which GPU and CPU disagree
    Diff(diff::Opts),
    /// Measure how well a checkpoint predicts a text, and how far it is from another one
    Perplexity(perplexity::Opts),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, global: &Global) -> Result<()> {
        match self {
            Command::Doctor(opts) => doctor::run(global, opts),
            Command::List(opts) => list::run(global, opts),
            Command::Validate(opts) => validate::run(global, opts),
            Command::Show(opts) => show::run(global, opts),
            Command::Map(opts) => map::run(global, opts),
            Command::Check(opts) => check::run(global, opts),
            Command::Sanitize(opts) => sanitize::run(global, opts),
            Command::Bench(opts) => bench::run(global, opts),
            Command::Suite(opts) => suite::run(global, opts),
            Command::Ab(opts) => ab::run(global, opts),
            Command::ExportWeb(opts) => export_web::run(global, opts),
            Command::Compare(opts) => compare::run(global, opts),
            Command::Report(opts) => report::run(global, opts),
            Command::Merge(opts) => merge::run(global, opts),
            Command::Tune(opts) => tune::run(global, opts),
            Command::TuneCandidates(opts) => tune::candidates(global, opts),
            Command::Synth(opts) => synth::run(global, opts),
            Command::Quantize(opts) => quantize::run(global, opts),
            Command::Inspect(opts) => inspect::run(global, opts),
            Command::Decode(opts) => decode::run(global, opts),
            Command::Chat(opts) => chat::run(global, opts),
            Command::Tokenize(opts) => tokenize::run(global, opts),
            Command::Diff(opts) => diff::run(global, opts),
            Command::Perplexity(opts) => perplexity::run(global, opts),
        }
    }
}
