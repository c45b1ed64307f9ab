//! A decode by operation: `decode --profile` and `bench decode`.

use lathe_harness::decode::profile::Floors;
use lathe_harness::files;
use lathe_harness::measure::{RunWatch, peaks};

use super::*;
use crate::generation::measured;

pub(super) fn profile(
    global: &Global,
    opts: &Opts,
    loaded: &Loaded,
    options: &RunOptions,
) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    crate::refuse_software(&gpu, opts.allow_software, "a profile record", "saves")?;
    let record =
        profile_record(global, &gpu, loaded, options, opts.verified(options), opts.log_every)?;
    let Body::Profile(profile) = &record.body else { return Ok(()) };
    let traced = opts.trace.as_deref().map(|path| {
        let text = trace(profile).to_string();
        files::replace(path, text.as_bytes()).map_err(Error::io(path))
    });
    finish(global, &record, opts.profile.as_deref())?;
    traced.transpose().map(drop)
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

fn profile_record(
    global: &Global,
    gpu: &Arc<Gpu>,
    loaded: &Loaded,
    options: &RunOptions,
    verify: Option<usize>,
    log_every: usize,
) -> Result<Record> {
    let mut watch = RunWatch::begin(gpu)?;
    let environment = &mut watch.environment;
    let floors = match peaks(gpu)? {
        Some(ceilings) => {
            environment.read_gb_s = ceilings.read_gb_s;
            environment.copy_gb_s = Some(ceilings.copy_gb_s);
            environment.ceilings = Some(ceilings);
            let dispatch_us = Some(ceilings.dependent_us);
            Floors { gb_s: ceilings.bandwidth_gb_s(), dispatch_us }
        }
        None => {
            let gb_s = environment.copy_gb_s.map_or_else(|| copy_bandwidth(gpu), Ok)?;
            Floors { gb_s, dispatch_us: None }
        }
    };
    let graph = loaded.graph(Some(gpu), options.positions())?;
    let mut executor = on_device(global, gpu, &Pipelines::default(), &graph)?;
    let kv = loaded.options.kv.name();
    let model = loaded.model.file.path.file_name().unwrap_or_default().to_string_lossy();
    let bar = global.progress(options.generate as u64, "profiling", false);
    let mut profile = lathe_harness::decode::profile::profile(
        &graph,
        &mut executor,
        options,
        (&model, kv),
        floors,
        verify,
        &mut |step| {
            bar.inc(1);
            let index = step.position - options.prompt.len();
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
        },
    )?;
    bar.finish_and_clear();
    profile.identity = measured(&loaded.model).identity();
    drop(executor);
    watch.end()?;
    Ok(Record::new(watch.environment, Body::Profile(profile)))
}

fn print_profile(p: &Profile) {
    let header = ["operation", "variant", "ms", "%", "floor ms", "× floor"];
    let mut t = table::table(&header, &[2, 3, 4, 5]);
    for op in &p.by_op {
        let variant = op.kernel.split_once('/').map_or(&*op.kernel, |(_, variant)| variant);
        t.add_row(vec![
            format!("{} ×{}", op.op, op.count),
            variant.to_owned(),
            format!("{:.4}", op.ms),
            format!("{:.1}", op.percent),
            op.least_ms().map_or_else(|| "-".into(), |ms| format!("{ms:.4}")),
            op.least_ms().map_or_else(|| "-".into(), |floor| format!("{:.1}", op.ms / floor)),
        ]);
    }
    out::table(t);
    outln!(
        "{:.4} ms a token as the sum of operations timed one by one; {} ms of GPU time and {:.1} \
         tok/s unprofiled; {}",
        p.serialised_ms_per_token,
        p.unprofiled.gpu_ms_per_token.map_or_else(|| "-".into(), |ms| format!("{ms:.4}")),
        p.unprofiled.decode_tok_s,
        verified(p.verified)
    );
}

/// What was verified, in a few words.
pub(super) fn verified(verified: Option<Verified>) -> String {
    verified.map_or("not verified".into(), |v| {
        format!("{} positions verified, NMSE ≤ {:.1e}", v.positions, v.worst_nmse)
    })
}

/// Saves and prints a profile.
fn finish(global: &Global, record: &Record, save: Option<&Path>) -> Result<()> {
    let Body::Profile(profile) = &record.body else { return Ok(()) };
    crate::save_and_print(record, save, || match global.json {
        true => print_quietly(record),
        false => print_profile(profile),
    })
}

/// `lathe bench decode --arch NAME`: expected against measured by operation, on a synthetic
/// checkpoint that is made for it and removed again.
pub(crate) fn bench_arch(
    global: &Global,
    spec: &SynthSpec,
    verify: Option<usize>,
    save: Option<&Path>,
) -> Result<()> {
    let folder = tempfile::tempdir().map_err(Error::io(std::env::temp_dir()))?;
    let model = crate::synth::synthetic(global, spec, folder.path())?;
    let gpu = Arc::new(global.open()?);
    let loaded = Loaded {
        model,
        prompt: vec![2, 5, 7, 11],
        prompt_text: None,
        options: SessionOptions { runs: Runs::Off, ..SessionOptions::default() },
    };
    let options = RunOptions {
        prompt: loaded.prompt.clone(),
        generate: if gpu.adapter.software { 4 } else { 64 },
        steps_per_submit: Some(8),
        ..Default::default()
    };
    finish(global, &profile_record(global, &gpu, &loaded, &options, verify, 0)?, save)
}
