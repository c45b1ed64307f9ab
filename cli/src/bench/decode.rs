//! `lathe bench decode`: llama-bench's tests, verified; or a step by operation.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::record::{Body, GenerationTest, GenerationTests, Record};
use lathe_harness::decode::Model;
use lathe_harness::decode::bench::{Bench, Settings, Test};
use lathe_harness::decode::prompts::drawn;
use lathe_harness::error::{Error, Result};
use lathe_harness::measure::RunWatch;
use lathe_harness::model::synth::{SynthArch, SynthSpec, weight_type};
use lathe_harness::report::generation;
use lathe_kernels::Format as WeightFormat;

use super::axes::{self, Counts};
use crate::decode::{ModelPaths, Shown, bench_arch};
use crate::generation::{RunOpts, told_apart};
use crate::sampling::SamplingOpts;
use crate::{Global, out, within};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Opts {
    #[command(flatten)]
    models: ModelPaths,
    /// Prompt tokens of the tests `pp`: counts, lists and ranges (128,256 1-4 128-512+128
    /// 128-1024*2); 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_parser = axes::counts)]
    n_prompt: Vec<Counts>,
    /// Generated tokens of the tests `tg`; 0 for none
    #[arg(short, long, value_name = "N", default_value = "128", value_parser = axes::counts)]
    n_gen: Vec<Counts>,
    /// A test of a prompt and what is generated after it (also -pg); may be repeated
    #[arg(long, value_name = "PP,TG", value_parser = axes::pair)]
    pg: Vec<(usize, usize)>,
    /// Tokens in the cache before each test, untimed
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_parser = axes::counts)]
    n_depth: Vec<Counts>,
    /// Timed runs of each test
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = within::<1, 1000>)]
    repetitions: usize,
    /// Sequences decoded together in the tests `tg`: counts, lists and ranges. Each must choose
    /// what it chooses alone; figures are of all together
    #[arg(long, value_name = "N", default_value = "1", value_parser = axes::counts)]
    sequences: Vec<Counts>,
    /// Decode steps in a submission: 1 compares with llama-bench, more are faster
    #[arg(long, value_name = "N", default_value = "1,8", value_parser = axes::batches)]
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
        let (prompts, generated) = (axes::all(&self.n_prompt), axes::all(&self.n_gen));
        let mut tests = Vec::new();
        let sequences = axes::all(&self.sequences);
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
        for depth in axes::all(&self.n_depth) {
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

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    if let Some(arch) = opts.arch {
        let allowed = opts.save.is_none() || opts.run.allow_software;
        crate::refuse_software(&global.open()?, allowed, "a speed record", "saves")?;
        let spec = SynthSpec { arch, quant: opts.quant, embed_quant: None, seed: 42 };
        let (verify, save) = (opts.run.verified(), opts.save.as_deref());
        return bench_arch(global, &spec, verify, save);
    }
    let tests = opts.tests()?;
    let gpu = Arc::new(global.open()?);
    opts.run.refuse(&gpu, opts.save.as_ref())?;
    // Files that cannot be decoded are better known before an hour of timing.
    let models = opts.models.get().map(Model::open).collect::<Result<Vec<_>>>()?;
    told_apart(models.iter().map(|m| m.file.path.as_path()))?;
    let watch = RunWatch::begin(&gpu)?;
    let body = GenerationTests { prompts: opts.run.prompts(), tests: Vec::new() };
    let mut results = Results { watch, body, save: opts.save.as_ref() };
    let settings = Settings {
        steps_per_submit: axes::all(&opts.steps_per_submit),
        warm_ups: 1,
        repetitions: opts.repetitions,
        verify: opts.run.verified(),
    };
    let most = tests.iter().map(Test::given).max().unwrap_or(0);
    let (options, mut shown) = (opts.run.options()?, Shown::new(global));
    for model in &models {
        let tokens = drawn(model, opts.run.seed, most)?;
        let mut bench = Bench::new(&gpu, model, &options, &settings, &tests)?;
        for test in &tests {
            let measured = bench.measure(*test, &tokens, &mut shown)?;
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
                results.push(figures)?;
            }
        }
    }
    results.end()?;
    results.print(global);
    Ok(())
}

struct Results<'a> {
    watch: RunWatch,
    body: GenerationTests,
    save: Option<&'a PathBuf>,
}

impl Results<'_> {
    fn record(&self) -> Record {
        Record::new(self.watch.environment.clone(), Body::GenerationTests(self.body.clone()))
    }

    /// Keeps a result. A run that is cut short keeps its results so far.
    fn push(&mut self, test: GenerationTest) -> Result<()> {
        self.body.tests.push(test);
        let Some(path) = self.save else { return Ok(()) };
        match self.body.tests.len() {
            1 => Ok(self.record().write(path)?),
            _ => Ok(self.record().rewrite(path)?),
        }
    }

    /// Finishes after the last model.
    fn end(&mut self) -> Result<()> {
        self.watch.end()?;
        self.save.map_or(Ok(()), |path| Ok(self.record().rewrite(path)?))
    }

    fn print(&self, global: &Global) {
        if let Some(path) = self.save {
            eprintln!("saved {}", path.display());
        }
        if global.json {
            out::document(&self.record());
            return;
        }
        let (run, env) = (&self.body, &self.watch.environment);
        let grid = generation::tests(run, env);
        outln!("{}\n{}\n{}", grid.text(), grid.note, generation::machine(env));
    }
}
