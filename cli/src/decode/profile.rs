//! A decode by operation (`--profile`, `bench decode --arch`), its layers by phase
//! (`--profile-phases`), or a prompt by operation (`--profile-prompt`).

use std::path::Path;
use std::sync::Arc;

use lathe_harness::data::record::{Body, Ceilings, Profile, Record, Verified};
use lathe_harness::data::stats;
use lathe_harness::decode::profile::{Floors, PhaseProfile, Profiler, PromptProfile};
use lathe_harness::decode::{DecodeOptions, Model, Script, memory};
use lathe_harness::error::{Error, Result};
use lathe_harness::files;
use lathe_harness::gpu::{Gpu, Pipelines};
use lathe_harness::measure::{RunWatch, copy_bandwidth, peaks};
use lathe_harness::model::synth::SynthSpec;
use lathe_harness::plan::run::Runs;
use lathe_harness::report::trace::trace;

use super::{ExecutorName, Opts, Shown};
use crate::{Global, out, table};

/// Runs at full speed whose times to the first token are shown.
const PROMPTS: usize = 7;

/// Runs of the whole step, and as many without each phase.
const ROUNDS: usize = 5;

pub(super) fn run(
    global: &Global,
    opts: &Opts,
    model: &Model,
    mut options: DecodeOptions,
    script: &Script,
) -> Result<()> {
    let option = match (opts.profile_prompt, opts.profile_phases) {
        (true, _) => "--profile-prompt",
        (_, true) => "--profile-phases",
        _ => "--profile",
    };
    if opts.executor == ExecutorName::Cpu {
        let error = format!("{option} times a GPU; it goes without --executor cpu");
        return Err(Error::Usage(error));
    }
    if !opts.profile_prompt && script.generate < 2 {
        return Err(Error::Usage(format!("{option} needs at least 2 tokens (-n)")));
    }
    if opts.profile_phases && options.sampling.is_some() {
        return Err(Error::Usage(
            "--profile-phases times greedy steps: how long a draw takes depends on the logits, and \
             a step without a phase has others"
                .into(),
        ));
    }
    let (gpu, verify) = (Arc::new(global.open()?), opts.verified(script));
    if opts.profile.is_some() {
        crate::refuse_software(&gpu, opts.allow_software, "a profile record", "saves")?;
        options.runs = Runs::Off;
        let record = steps(global, &gpu, model, &options, script, verify, opts.log_every)?;
        let Body::Profile(profile) = &record.body else { return Ok(()) };
        let traced = opts.trace.as_deref().map(|path| {
            let text = trace(profile).to_string();
            files::replace(path, text.as_bytes()).map_err(Error::io(path))
        });
        finish(global, &record, opts.profile.as_deref())?;
        return traced.transpose().map(drop);
    }
    if opts.profile_prompt {
        // Operations are timed one by one.
        options.runs = Runs::Off;
    } else if !gpu.adapter.timestamps {
        return Err(Error::Unavailable {
            what: option.into(),
            adapter: gpu.adapter.name.clone(),
            reason: "it has no timestamps".into(),
        });
    }
    let graph = model.graph(Some(&gpu), &options)?;
    if opts.profile_phases && graph.recording.runs.is_empty() {
        let runs = options.runs;
        return Err(Error::Usage(format!(
            "no layers of this step are one dispatch (--runs {runs}); `decode -v` says why"
        )));
    }
    // Before the weights take the memory.
    let gb_s = match opts.profile_phases {
        true => floors(&gpu, None)?.0.gb_s,
        false => 0.0,
    };
    let mut shown = Shown::new(global);
    let mut executor = memory::load(&gpu, &Pipelines::default(), &graph, &mut shown)?;
    let profiler = Profiler::new(&graph, &mut executor, script, verify)?;
    if opts.profile_prompt {
        let profile = profiler.prompt(PROMPTS)?;
        global.print(&profile, || print_prompt(&profile));
    } else {
        let profile = profiler.phases(gb_s, ROUNDS)?;
        global.print(&profile, || print_phases(&profile));
        if gpu.adapter.software && !global.json {
            outln!("A software adapter: these times say nothing about a GPU.");
        }
    }
    Ok(())
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

fn steps(
    global: &Global,
    gpu: &Arc<Gpu>,
    model: &Model,
    options: &DecodeOptions,
    script: &Script,
    verify: Option<usize>,
    log_every: usize,
) -> Result<Record> {
    let mut watch = RunWatch::begin(gpu)?;
    let environment = &mut watch.environment;
    let (floors, ceilings) = floors(gpu, environment.copy_gb_s)?;
    if let Some(ceilings) = ceilings {
        environment.read_gb_s = ceilings.read_gb_s;
        environment.copy_gb_s = Some(ceilings.copy_gb_s);
        environment.ceilings = Some(ceilings);
    }
    let graph = model.graph(Some(gpu), options)?;
    let mut shown = Shown::new(global);
    let mut executor = memory::load(gpu, &Pipelines::default(), &graph, &mut shown)?;
    let name = model.file.path.file_name().unwrap_or_default().to_string_lossy();
    let bar = global.progress(script.generate as u64, "profiling", false);
    let profiler = Profiler::new(&graph, &mut executor, script, verify)?;
    let mut profile = profiler.steps((&name, options.kv.name()), floors, &mut |step| {
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
    profile.identity = model.measured().identity();
    drop(executor);
    watch.end()?;
    Ok(Record::new(watch.environment, Body::Profile(profile)))
}

/// `lathe bench decode --arch NAME`: expected and measured by operation, on a synthetic checkpoint
/// that is made for it and removed again.
pub(crate) fn bench_arch(
    global: &Global,
    spec: &SynthSpec,
    verify: Option<usize>,
    save: Option<&Path>,
) -> Result<()> {
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let model = crate::synth::synthetic(global, spec, folder.path())?;
    let gpu = Arc::new(global.open()?);
    let script = Script {
        prompt: vec![2, 5, 7, 11],
        generate: if gpu.adapter.software { 4 } else { 64 },
        steps_per_submit: Some(8),
        ..Script::default()
    };
    let (context, runs) = (script.positions(), Runs::Off);
    let options = DecodeOptions { context, runs, ..DecodeOptions::default() };
    finish(global, &steps(global, &gpu, &model, &options, &script, verify, 0)?, save)
}

/// Saves and prints a profile.
fn finish(global: &Global, record: &Record, save: Option<&Path>) -> Result<()> {
    let Body::Profile(profile) = &record.body else { return Ok(()) };
    crate::save_and_print(record, save, || match global.json {
        true => print_quietly(record),
        false => print_steps(profile),
    })
}

/// Prints a record without its steps and operations, which only the saved one needs.
fn print_quietly(record: &Record) {
    match serde_json::to_value(record) {
        Ok(mut value) => {
            if let Some(body) = value.as_object_mut() {
                body.remove("steps");
                body.remove("ops");
            }
            out::document(&value);
        }
        Err(e) => out::end(&e.into()),
    }
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

fn print_phases(profile: &PhaseProfile) {
    let rows = profile.by_phase.iter().map(|phase| {
        let stage = match phase.stage {
            0 => String::new(),
            stage => format!(", dispatch {}", stage + 1),
        };
        let figures = vec![
            number(Some(phase.ms), 4),
            number(Some(100.0 * phase.ms / profile.ms_per_token), 1),
            number(phase.floor_ms, 4),
            number(Some(phase.ms - phase.floor_ms.unwrap_or(0.0)), 4),
            number(Some(1e3 * phase.ms / phase.count as f64), 2),
        ];
        (format!("{}{stage}", phase.op), phase.count, phase.kernel.as_str(), figures)
    });
    let figures = ["ms", "%", "floor ms", "lost ms", "µs a layer"];
    print_table(["phase", "variant"], &figures, rows);
    outln!(
        "{:.4} ms of GPU time a token (median of {ROUNDS}). A phase's are those by which a step \
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
