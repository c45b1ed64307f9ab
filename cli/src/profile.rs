//! A decode by operation (`--profile`, `bench decode --arch`), its layers by stage
//! (`--profile-stages`), or a prompt by operation (`--profile-prompt`).

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use lathe_harness::data::record::{Body, Ceilings, Profile, Record, Verified};
use lathe_harness::data::stats;
use lathe_harness::decode::graph::DecodeGraph;
use lathe_harness::decode::profile::{Floors, Profiler, PromptProfile, StageProfile};
use lathe_harness::decode::{DecodeOptions, Model, Script, memory};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::GpuExecutor;
use lathe_harness::files;
use lathe_harness::gpu::{Gpu, Pipelines};
use lathe_harness::measure::{RunWatch, copy_bandwidth, peaks};
use lathe_harness::plan::persistent::Persistent;
use lathe_harness::report::trace::trace;

use crate::global::Global;
use crate::model::Shown;
use crate::saved::Saved;
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct ProfileOpts {
    /// Time every operation and write the record (JSON); an existing file is not overwritten
    #[arg(long, value_name = "FILE", conflicts_with_all = ["force_tokens", "logits_out"])]
    profile: Option<PathBuf>,
    /// Time every operation of the prompt, and the first token, and print both
    #[arg(long, conflicts_with_all = ["profile", "logits_out"])]
    profile_prompt: bool,
    /// Print the time that each stage of the layers' dispatch adds to a step
    #[arg(long, conflicts_with_all = ["profile", "profile_prompt", "force_tokens", "logits_out"])]
    profile_stages: bool,
    /// Also write the profile as a Chrome trace
    #[arg(long, value_name = "FILE", requires = "profile")]
    trace: Option<PathBuf>,
    /// With --profile, log every Nth step
    #[arg(long, value_name = "N", default_value_t = 0, requires = "profile")]
    log_every: usize,
    /// Let a software adapter save a profile
    #[arg(long, requires = "profile")]
    allow_software: bool,
}

/// A decode to profile, and the number of its first positions to verify.
pub(crate) struct Profiled<'a> {
    pub(crate) gpu: &'a Arc<Gpu>,
    pub(crate) model: &'a Model,
    pub(crate) options: DecodeOptions,
    pub(crate) script: &'a Script,
    pub(crate) verify: Option<usize>,
}

/// Runs at full speed whose times to the first token are shown.
const PROMPTS: usize = 7;

/// Runs of the whole step, and as many without each stage.
const ROUNDS: usize = 5;

impl ProfileOpts {
    /// Returns true if steps are timed operation by operation or stage by stage.
    pub(crate) fn of_steps(&self) -> bool {
        self.profile.is_some() || self.profile_stages
    }

    /// The option that asks for a profile, if one does.
    pub(crate) fn asked(&self) -> Option<&'static str> {
        match (&self.profile, self.profile_prompt) {
            (Some(_), _) => Some("--profile"),
            (_, true) => Some("--profile-prompt"),
            _ => self.profile_stages.then_some("--profile-stages"),
        }
    }

    /// Prints the profile that is asked for, and saves that of steps.
    pub(crate) fn run(&self, global: &Global, profiled: Profiled<'_>) -> Result<()> {
        let option = self.asked().unwrap_or_default();
        if !self.profile_prompt && profiled.script.generate < 2 {
            return Err(Error::Usage(format!("{option} needs at least 2 tokens (-n)")));
        }
        let path = self.profile.as_deref();
        let saved = Saved::of_speed(path, profiled.gpu, self.allow_software)?;
        if self.profile_stages {
            profiled.stages(global)
        } else if self.profile_prompt {
            profiled.prompt(global)
        } else {
            let record = profiled.steps(global, self.log_every)?;
            let Body::Profile(profile) = &record.body else { return Ok(()) };
            let traced = self.trace.as_deref().map(|path| {
                let text = trace(profile).to_string();
                files::replace(path, text.as_bytes()).map_err(Error::io(path))
            });
            finish(global, saved, &record)?;
            traced.transpose().map(drop)
        }
    }
}

/// Bounds of the device, with its peaks; where those are not measured, by the copy bandwidth.
fn floors(gpu: &Gpu, copied: Option<f64>) -> Result<(Floors, Option<Ceilings>)> {
    let peaks = peaks(gpu)?;
    let floors = match &peaks {
        Some(c) => Floors { gb_s: c.bandwidth_gb_s(), dispatch_us: Some(c.dependent_us) },
        None => Floors { gb_s: copied.map_or_else(|| copy_bandwidth(gpu), Ok)?, dispatch_us: None },
    };
    Ok((floors, peaks))
}

impl Profiled<'_> {
    /// The decode's step.
    fn graph(&self) -> Result<DecodeGraph> {
        self.model.graph(Some(self.gpu), &self.options)
    }

    fn load(&self, global: &Global, graph: &DecodeGraph) -> Result<GpuExecutor> {
        memory::load(self.gpu, &Pipelines::default(), graph, &mut Shown::new(global))
    }

    /// A record of a decode, operation by operation.
    pub(crate) fn steps(mut self, global: &Global, log_every: usize) -> Result<Record> {
        self.options.persistent = Persistent::Off;
        let mut watch = RunWatch::begin(self.gpu)?;
        let environment = &mut watch.environment;
        let (floors, ceilings) = floors(self.gpu, environment.copy_gb_s)?;
        if let Some(ceilings) = ceilings {
            environment.read_gb_s = ceilings.read_gb_s;
            environment.copy_gb_s = Some(ceilings.copy_gb_s);
            environment.ceilings = Some(ceilings);
        }
        let (graph, script) = (self.graph()?, self.script);
        let mut executor = self.load(global, &graph)?;
        let name = self.model.file.path.file_name().unwrap_or_default().to_string_lossy();
        let bar = global.progress(script.generate as u64, "profiling", false);
        let profiler = Profiler::new(&graph, &mut executor, script, self.verify)?;
        let mut profile = profiler.steps((&name, self.options.kv.name()), floors, &mut |step| {
            bar.inc(1);
            let index = step.position - script.prompt.len();
            if log_every > 0 && index.is_multiple_of(log_every) {
                let gpu_ms = step.us.iter().sum::<f64>() / 1e3;
                bar.suspend(|| {
                    eprintln!(
                        "position {}: operations {gpu_ms:.3} ms, record {:.3}, submit {:.3}, wait \
                         {:.3} ms",
                        step.position, step.record_ms, step.submit_ms, step.wait_ms
                    );
                });
            }
        })?;
        bar.finish_and_clear();
        profile.identity = self.model.measured().identity();
        drop(executor);
        watch.end()?;
        Ok(Record::new(watch.environment, Body::Profile(profile)))
    }

    /// Prints a prompt, operation by operation.
    fn prompt(mut self, global: &Global) -> Result<()> {
        self.options.persistent = Persistent::Off;
        let graph = self.graph()?;
        let mut executor = self.load(global, &graph)?;
        let profiler = Profiler::new(&graph, &mut executor, self.script, self.verify)?;
        let profile = profiler.prompt(PROMPTS)?;
        global.print(&profile, || print_prompt(&profile));
        Ok(())
    }

    /// Prints the layers of a decode step, stage by stage.
    fn stages(self, global: &Global) -> Result<()> {
        if self.options.sampling.is_some() {
            return Err(Error::Usage(
                "--profile-stages times greedy steps: how long a draw takes depends on the logits, \
                 and a step without a stage has others"
                    .into(),
            ));
        }
        let adapter = &self.gpu.adapter;
        if !adapter.timestamps {
            return Err(Error::Unavailable {
                what: "--profile-stages".into(),
                adapter: adapter.name.clone(),
                reason: "it has no timestamps".into(),
            });
        }
        let graph = self.graph()?;
        if graph.recording.persistent.is_empty() {
            let runs = self.options.persistent;
            return Err(Error::Usage(format!(
                "no layers of this step are one dispatch (--persistent {runs}); `decode -v` says why"
            )));
        }
        // Before the weights take the memory.
        let gb_s = floors(self.gpu, None)?.0.gb_s;
        let mut executor = self.load(global, &graph)?;
        let profiler = Profiler::new(&graph, &mut executor, self.script, self.verify)?;
        let profile = profiler.stages(gb_s, ROUNDS)?;
        global.print(&profile, || {
            print_stages(&profile);
            if adapter.software {
                outln!("A software adapter: these times say nothing about a GPU.");
            }
        });
        Ok(())
    }
}

/// Saves and prints a profile. JSON leaves out its steps and operations, which only the saved one
/// needs.
pub(crate) fn finish(global: &Global, saved: Saved<'_>, record: &Record) -> Result<()> {
    let Body::Profile(profile) = &record.body else { return Ok(()) };
    saved.end_with(record, || match global.json {
        true => match serde_json::to_value(record) {
            Ok(mut value) => {
                if let Some(body) = value.as_object_mut() {
                    body.remove("steps");
                    body.remove("ops");
                }
                out::document(&value);
            }
            Err(e) => out::end(&e.into()),
        },
        false => print_steps(profile),
    })
}

/// The comparison with the reference, in a few words.
fn verified(verified: Option<Verified>) -> String {
    verified.map_or("not verified".into(), |v| {
        format!("{} positions verified, NMSE ≤ {:.1e}", v.positions, v.worst_nmse)
    })
}

/// A table of operations: each with its count, its variant and its figures.
fn print_table<'a>(
    head: [&str; 2],
    figures: &[&str],
    rows: impl Iterator<Item = (String, usize, &'a str, Vec<String>)>,
) {
    let head = [&head[..], figures].concat();
    let mut t = table::table(&head, &Vec::from_iter(2..head.len()));
    for (name, count, kernel, figures) in rows {
        let variant = kernel.split_once('/').map_or(kernel, |(_, variant)| variant);
        let first = [format!("{name} ×{count}"), variant.to_owned()];
        t.add_row(first.into_iter().chain(figures).collect::<Vec<_>>());
    }
    out::table(t);
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

fn print_steps(p: &Profile) {
    let rows = p.by_op.iter().map(|op| {
        let floor = op.least_ms();
        let figures = vec![
            number(Some(op.ms), 4),
            number(Some(op.percent), 1),
            number(floor, 4),
            number(floor.map(|floor| op.ms / floor), 1),
        ];
        (op.op.clone(), op.count, op.kernel.as_str(), figures)
    });
    print_table(["operation", "variant"], &["ms", "%", "floor ms", "× floor"], rows);
    outln!(
        "{:.4} ms a token as the sum of operations timed one by one; {} ms of GPU time and {:.1} \
         tok/s unprofiled; {}",
        p.serialised_ms_per_token,
        number(p.unprofiled.gpu_ms_per_token, 4),
        p.unprofiled.decode_tok_s,
        verified(p.verified)
    );
}

fn print_stages(profile: &StageProfile) {
    let rows = profile.by_stage.iter().map(|stage| {
        let part = match stage.stage {
            0 => String::new(),
            stage => format!(", dispatch {}", stage + 1),
        };
        let figures = vec![
            number(Some(stage.ms), 4),
            number(Some(100.0 * stage.ms / profile.ms_per_token), 1),
            number(stage.floor_ms, 4),
            number(Some(stage.ms - stage.floor_ms.unwrap_or(0.0)), 4),
            number(Some(1e3 * stage.ms / stage.count as f64), 2),
        ];
        (format!("{}{part}", stage.op), stage.count, stage.kernel.as_str(), figures)
    });
    let figures = ["ms", "%", "floor ms", "lost ms", "µs a layer"];
    print_table(["stage", "variant"], &figures, rows);
    outln!(
        "{:.4} ms of GPU time a token (median of {ROUNDS}). A stage's are those by which a step \
         without it and its wait is shorter; they do not add up. Floors at {} tokens; {}",
        profile.ms_per_token,
        profile.n_kv,
        verified(profile.verified),
    );
}

fn print_prompt(profile: &PromptProfile) {
    let all: f64 = profile.by_op.iter().map(|op| op.ms).sum();
    let rows = profile.by_op.iter().map(|op| {
        let figures = vec![
            number(Some(op.ms), 3),
            number(Some(100.0 * op.ms / all), 1),
            number(Some(1e3 * op.ms / op.count as f64), 1),
            number(Some(op.flops / op.ms / 1e9), 1),
            number(Some(op.bytes / op.ms / 1e6), 0),
        ];
        (op.op.clone(), op.count, op.kernel.as_str(), figures)
    });
    let figures = ["ms", "%", "µs each", "TFLOP/s", "GB/s"];
    print_table(["operation", "variant"], &figures, rows);
    let ttft = stats::summarise(&profile.ttft_ms).median;
    outln!(
        "{} tokens: {all:.3} ms as the sum of operations timed one by one; first token after {ttft:.3} \
         ms at full speed (median of {}), {:.0} tok/s; {}",
        profile.tokens,
        profile.ttft_ms.len(),
        profile.tokens as f64 / ttft * 1e3,
        verified(profile.verified),
    );
}
