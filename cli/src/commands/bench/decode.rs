//! `lathe bench decode`: llama-bench's tests, verified; or a step by operation.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::record::{Body, GenerationTests};
use lathe_harness::decode::bench::{Bench, Measured, Settings, Test};
use lathe_harness::decode::{DecodeOptions, Model, Script};
use lathe_harness::error::{Error, Result};
use lathe_harness::model::synth::{SynthArch, SynthSpec, weight_type, write_synth};
use lathe_harness::report::generation;
use lathe_kernels::Format as WeightFormat;

use crate::args::{self, Counts};
use crate::global::Global;
use crate::model::{RunOpts, SamplingOpts};
use crate::out;
use crate::profile::{Profiled, finish};
use crate::saved::Saved;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Opts {
    /// Prompt tokens of the tests `pp`: counts, lists and ranges (128,256 1-4 128-512+128
    /// 128-1024*2); 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_parser = args::counts)]
    n_prompt: Vec<Counts>,
    /// Generated tokens of the tests `tg`; 0 for none
    #[arg(short, long, value_name = "N", default_value = "128", value_parser = args::counts)]
    n_gen: Vec<Counts>,
    /// A test of a prompt and what is generated after it (also -pg); may be repeated
    #[arg(long, value_name = "PP,TG", value_parser = args::pair)]
    pg: Vec<(usize, usize)>,
    /// Tokens in the cache before each test, untimed
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = args::counts)]
    n_depth: Vec<Counts>,
    /// Timed runs of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = args::within::<1, 1000>)]
    repetitions: usize,
    /// Sequences decoded together in the tests `tg`: counts, lists and ranges. Each must choose
    /// what it chooses alone; figures are of all together
    #[arg(long, value_name = "N", default_value = "1", value_parser = args::counts)]
    sequences: Vec<Counts>,
    /// Decode steps in a submission: 1 compares with llama-bench, more are faster
    #[arg(long, value_name = "N", default_value = "1,8", value_parser = args::batches)]
    steps_per_submit: Vec<Counts>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    run: RunOpts,
    #[command(flatten)]
    sampling: SamplingOpts,
    /// A step by operation, expected against measured, on a synthetic checkpoint of this
    /// architecture, such as gemma3-1b; goes with none of the tests' options
    #[arg(long, value_name = "ARCH", conflicts_with_all = TESTS)]
    arch: Option<SynthArch>,
    /// With --arch: storage of the weights
    #[arg(long, default_value = "bf16", requires = "arch", value_parser = weight_type)]
    quant: WeightFormat,
}

/// Options without meaning for a step by operation.
const TESTS: [&str; 19] = [
    "files",
    "model",
    "n_prompt",
    "n_gen",
    "pg",
    "n_depth",
    "repetitions",
    "sequences",
    "steps_per_submit",
    "kv",
    "activations",
    "hint",
    "untuned",
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "repeat_penalty",
    "repeat_last_n",
];

const EXAMPLES: &str = "Examples:
  lathe bench decode -m model.gguf                         pp512 and tg128, as llama-bench
  lathe bench decode -m model.gguf -p 0 -n 128 -d 0,4096   generation at two depths
  lathe bench decode -m model.gguf -p 0 --sequences 1,8    one sequence, and eight together
  lathe bench decode -m model.gguf -p 0 --temperature 0.8 --top-p 0.95   tokens that are drawn
  lathe bench decode -m model.gguf -p 128-2048*2 -n 0 -pg 512,128
  lathe bench decode --arch gemma3-1b                      a step by operation, no checkpoint";

impl Opts {
    /// All tests of a model: by depth, then `pp`, `tg` and both, each once.
    fn tests(&self) -> Result<Vec<Test>> {
        let (prompts, generated) =
            (args::all_counts(&self.n_prompt), args::all_counts(&self.n_gen));
        let mut tests = Vec::new();
        let sequences = args::all_counts(&self.sequences);
        if sequences.contains(&0) {
            return Err(Error::Usage("--sequences 0 decodes nothing".into()));
        }
        let sampling = self.sampling.settings(None)?;
        if sampling.is_some() && sequences.iter().any(|n| *n > 1) {
            return Err(Error::Usage(
                "several sequences choose the largest logit: --sequences goes with no sampling"
                    .into(),
            ));
        }
        for depth in args::all_counts(&self.n_depth) {
            let pp = prompts.iter().map(|&prompt| (prompt, 0, 1));
            let tg = generated
                .iter()
                .flat_map(|&generate| sequences.iter().map(move |&n| (0, generate, n)));
            let pg = self.pg.iter().map(|&(prompt, generate)| (prompt, generate, 1));
            for (prompt, generate, sequences) in pp.chain(tg).chain(pg) {
                let test = Test { depth, prompt, generate, sequences, sampling, spare: 0 };
                if prompt + generate > 0 && !tests.contains(&test) {
                    tests.push(test);
                }
            }
        }
        match tests.is_empty() {
            true => Err(Error::Usage("-p 0 -n 0 without -pg leaves no test".into())),
            false => Ok(tests),
        }
    }
}

/// Times a step by operation on a synthetic checkpoint that is made for it and removed again.
fn of_arch(global: &Global, opts: &Opts, spec: &SynthSpec) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    let saved = Saved::of_speed(opts.save.as_deref(), &gpu, opts.run.allow_software)?;
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let path = folder.path().join(format!("{}-{}.gguf", spec.arch, spec.quant.name()));
    global.by_bytes("writing weights", |on| write_synth(spec, &path, on))?;
    let script = Script {
        prompt: vec![2, 5, 7, 11],
        generate: if gpu.adapter.software { 4 } else { 64 },
        steps_per_submit: Some(8),
        ..Script::default()
    };
    let options = DecodeOptions { context: script.positions(), ..DecodeOptions::default() };
    let (model, verify) = (Model::open(path)?, opts.run.verified());
    let profiled = Profiled { gpu: &gpu, model: &model, options, script: &script, verify };
    finish(global, saved, &profiled.steps(global, 0)?)
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if let Some(arch) = opts.arch {
        let spec = SynthSpec { arch, quant: opts.quant, embed_quant: None, seed: 42 };
        return of_arch(global, opts, &spec);
    }
    let tests = opts.tests()?;
    let settings = Settings {
        steps_per_submit: args::all_counts(&opts.steps_per_submit),
        warm_ups: 1,
        repetitions: opts.repetitions,
        verify: opts.run.verified(),
    };
    let body = GenerationTests { prompts: opts.run.prompts(), tests: Vec::new() };
    let kind = (body, Body::GenerationTests as fn(GenerationTests) -> Body);
    let on_test =
        |body: &mut GenerationTests, bench: &Bench<'_>, nth: usize, measured: Measured| {
            let test: &Test = &tests[nth];
            for figures in measured.figures() {
                let (rate, sd) = (figures.avg_ts, figures.stddev_ts);
                let each = match test.sequences {
                    1 => String::new(),
                    n => format!(", {:.1} each", rate / n as f64),
                };
                let steps = match figures.steps_per_submit {
                    None => String::new(),
                    Some(1) => ", 1 step a submission".into(),
                    Some(n) => format!(", {n} steps a submission"),
                };
                let (file, name) = (out::escaped(bench.facts.file()), test.name());
                eprintln!("{rate:>9.1} ± {sd:.1} tok/s{each}  {file} {name}{steps}");
                body.tests.push(figures);
            }
        };
    let path = opts.save.as_deref();
    let (saved, record) = opts.run.measure(global, path, (&settings, &tests), kind, on_test)?;
    saved.end(global, &record, || {
        let Body::GenerationTests(run) = &record.body else { return };
        let grid = generation::tests(run, &record.environment);
        let machine = generation::machine(&record.environment);
        outln!("{}\n{}\n{machine}", grid.text(), grid.note);
    })
}
