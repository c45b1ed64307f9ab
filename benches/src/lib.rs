//! Shared code of the criterion targets. Times are GPU timestamps through `iter_custom`; results of
//! timed invocations are compared with the reference; weights are rotated past the cache.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use lathe_harness::decode::{Checked, DecodeOptions, Decoder, Model, Script, VERIFIED};
use lathe_harness::execute::GpuExecutor;
use lathe_harness::gpu::{Checks, Gpu, Pipelines, Policy};
use lathe_harness::judge::check::Case;
use lathe_harness::measure::{Bench, BenchOptions, Temperature};
use lathe_harness::model::synth::{SynthArch, SynthSpec, write_synth};
use lathe_harness::plan::Plan;
use lathe_harness::{Error, Result};
use lathe_kernels::{Format, Kernel, KernelVariant, Problem};

const SEED: u64 = 42;

/// Benchmarks every variant of the kernels named by arguments, such as `gemv` or `gemv/naive`, or
/// of all kernels if there are none; the body of the kernels' criterion target.
pub fn kernels() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let begins = |argument: &String, name| argument.split('/').next() == Some(name);
    let is_named = |kernel: &&Kernel| arguments.iter().any(|a| begins(a, kernel.name));
    let all = lathe_kernels::kernels();
    let named: Vec<_> = all.iter().filter(is_named).collect();
    end(|criterion| {
        let gpu = Arc::new(Gpu::open(None, Checks::Files)?);
        let kernels = if named.is_empty() { all.iter().collect() } else { named };
        kernels.into_iter().try_for_each(|kernel| kernel_with(criterion, &gpu, kernel))
    });
}

/// Benchmarks decode steps; the body of the decode target.
pub fn decode() {
    end(decode_with);
}

fn end(run: impl FnOnce(&mut Criterion) -> Result<()>) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    or_end(run(&mut criterion));
    criterion.final_summary();
}

fn kernel_with(criterion: &mut Criterion, gpu: &Arc<Gpu>, kernel: &'static Kernel) -> Result<()> {
    let mut group = criterion.benchmark_group(kernel.name);
    each_variant(gpu, kernel, |variant, problem, bench| {
        group.throughput(Throughput::Bytes(kernel.cost(problem).bytes as u64));
        for temperature in [Temperature::Cold, Temperature::Warm] {
            let id = format!("{}/{temperature:?}", variant.name).to_lowercase();
            let mut samples = 0;
            group.bench_function(BenchmarkId::new(id, kernel.show(problem)), |b| {
                b.iter_custom(|count| {
                    samples += 1;
                    or_end(sample(bench, count, temperature, samples))
                });
            });
        }
        Ok(())
    })?;
    group.finish();
    Ok(())
}

/// Prepares each variant on each benchmarked problem and passes it to `run`; reports those that
/// cannot run.
fn each_variant(
    gpu: &Arc<Gpu>,
    kernel: &'static Kernel,
    mut run: impl FnMut(&KernelVariant, &Problem, &mut Bench) -> Result<()>,
) -> Result<()> {
    for problem in problems(kernel, gpu) {
        for variant in kernel.variants {
            match prepared(gpu, kernel, variant, &problem)? {
                Ok(mut bench) => run(variant, &problem, &mut bench)?,
                Err(reason) => eprintln!("unavailable {}/{} {reason}", kernel.name, variant.name),
            }
        }
    }
    Ok(())
}

/// A variant prepared on a problem, or the reason why it cannot run there.
fn prepared(
    gpu: &Arc<Gpu>,
    kernel: &'static Kernel,
    variant: &'static KernelVariant,
    problem: &Problem,
) -> Result<Result<Bench, String>> {
    let (options, text) = (BenchOptions::of(gpu), kernel.show(problem));
    let plan = match Plan::of(kernel, variant, &problem.shape, &gpu.caps) {
        Ok(plan) => plan,
        Err(e) => return Ok(Err(format!("{text}: {e}"))),
    };
    let made = Case::new(gpu, plan, problem, options.seed).and_then(|case| {
        Bench::new(gpu, &Pipelines::default(), case, options.rotate_bytes)?.validated()
    });
    match made {
        Err(Error::Unavailable { what, reason, .. }) => {
            Ok(Err(format!("{text}: {what}: {reason}")))
        }
        made => made.map(Ok),
    }
}

/// Time of a sample. The first and every 16th are judged before criterion receives them.
fn sample(bench: &mut Bench, count: u64, temperature: Temperature, nth: usize) -> Result<Duration> {
    bench.renew()?;
    let time = bench.time(count, temperature)?;
    if nth == 1 || nth.is_multiple_of(16) {
        bench.judge_left(temperature)?;
    }
    Ok(time)
}

/// Unwraps a measurement. An error ends the process, since criterion would print any number
/// returned in its place.
fn or_end<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|e| {
        eprintln!("lathe: {e}");
        std::process::exit(i32::from(e.exit_code()))
    })
}

/// The kernel's benchmarked problems. On a software adapter, which can only show that a benchmark
/// works, the largest of the fixed cases that takes only a moment.
fn problems(kernel: &Kernel, gpu: &Gpu) -> Vec<Problem> {
    const MOMENT: f64 = 2e5;
    if !gpu.adapter.software {
        return kernel.bench();
    }
    let effort = |problem: &Problem| {
        let cost = kernel.cost(problem);
        cost.bytes + cost.flops
    };
    let small = kernel.cases().into_iter().filter(|problem| effort(problem) <= MOMENT);
    small.max_by(|a, b| effort(a).total_cmp(&effort(b))).into_iter().collect()
}

fn decode_with(criterion: &mut Criterion) -> Result<()> {
    const STEPS: usize = 16;
    let gpu = Arc::new(Gpu::open(None, Checks::Files)?);
    let folder =
        tempfile::tempdir().map_err(|source| Error::Io { path: std::env::temp_dir(), source })?;
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for arch in [SynthArch::Gemma3Mini, SynthArch::LlamaMini, SynthArch::Qwen3Mini] {
        let path = folder.path().join(format!("{arch}.gguf"));
        let spec = SynthSpec { arch, quant: Format::Bf16, embed_quant: None, seed: SEED };
        write_synth(&spec, &path, &mut |_, _| {})?;
        let options = DecodeOptions::of_step(STEPS + 4);
        let graph = Model::open(&path)?.graph_for(&gpu.caps, &options)?;
        let recording = Arc::clone(&graph.recording);
        let mut executor = GpuExecutor::new(
            Arc::clone(&gpu),
            &Pipelines::default(),
            recording,
            Policy::Plain,
            &mut |_, _| {},
        )?;
        let run = Script {
            prompt: vec![2, 5, 7],
            generate: STEPS + 1,
            steps_per_submit: Some(8),
            ..Default::default()
        };
        let mut decoder = Decoder::new(&graph, &mut executor);
        let mut checked = Checked::begin(&mut decoder, run, Some(VERIFIED))?;
        group.bench_function(BenchmarkId::new("step", arch), |b| {
            b.iter_custom(|count| {
                let mut time = Duration::ZERO;
                let runs = count.div_ceil(STEPS as u64);
                for _ in 0..runs {
                    let run = or_end(checked.run(&mut decoder));
                    time += run.steps.iter().sum::<Duration>();
                }
                time.mul_f64(count as f64 / (runs * STEPS as u64) as f64)
            });
        });
    }
    group.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The body of a benchmark once, untimed: that of a product, of a sum in place, and of two
    /// dispatches over scratch memory.
    #[test]
    fn benchmarks_run() {
        let gpu = match Gpu::open(None, Checks::Files) {
            Ok(gpu) => Arc::new(gpu),
            Err(e) => {
                assert!(std::env::var("LATHE_REQUIRE_GPU").as_deref() != Ok("1"), "{e}");
                eprintln!("UNAVAILABLE, not tested: {e}");
                return;
            }
        };
        for name in ["gemv", "residual_add", "attention_decode"] {
            let kernel = lathe_kernels::kernel(name).unwrap();
            let mut ran = 0;
            let run = each_variant(&gpu, kernel, |_, _, bench| {
                ran += 1;
                for temperature in [Temperature::Cold, Temperature::Warm] {
                    sample(bench, 1, temperature, 1)?;
                }
                Ok(())
            });
            run.unwrap();
            assert!(ran > 0, "{name}: no benchmark ran");
        }
    }
}
