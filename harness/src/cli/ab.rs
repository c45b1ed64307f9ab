//! `lathe ab`: is B really faster than A?

use std::sync::Arc;

use clap::Args;

use super::Global;
use super::generation::recorded_name;
use crate::data::paired::{Comparison, Verdict};
use crate::data::record::{Ab, Body, Flag, Record};
use crate::data::{Ratio, stats};
use crate::error::{Error, Result};
use crate::gpu::{Checks, Pipelines, Span};
use crate::judge::check::Case;
use crate::measure::ab::{self, AbOptions};
use crate::measure::{Bench, BenchOptions, environment};
use crate::plan::user::is_file;
use crate::plan::{Plan, PlanError};
use crate::report::table;

#[derive(Debug, Args)]
pub(super) struct Opts {
    /// KERNEL, or `decode` for whole steps
    kernel: String,
    /// First side: VARIANT or [VARIANT=]FILE.wgsl, a file in that variant's place (else the
    /// first's); for `decode` KERNEL=VARIANT, KERNEL[/VARIANT]=FILE.wgsl,
    /// or weights=f16 (any type of `lathe quantize`) for weights converted while loading, beside
    /// weights=as_stored
    #[arg(long, value_name = "VARIANT")]
    a: String,
    /// Second side, judged against the first
    #[arg(long, value_name = "VARIANT")]
    b: String,
    /// Shape; what is not named keeps the kernel's default
    #[arg(long)]
    shape: Option<String>,
    /// GGUF file, for `decode`
    #[arg(long, value_name = "FILE")]
    model: Option<std::path::PathBuf>,
    /// Time files that are right for --shape alone: they are not checked on others, and the result
    /// says so
    #[arg(long, requires = "shape")]
    one_shape: bool,
    /// Seconds after which the run ends whatever is known
    #[arg(long, value_name = "SECONDS")]
    time_out: Option<u64>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<std::path::PathBuf>,
    /// Let a software adapter give a verdict
    #[arg(long)]
    allow_software: bool,
}

pub(super) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    if gpu.adapter.software && !opts.allow_software {
        return Err(Error::Unavailable {
            what: "a speed verdict".into(),
            adapter: gpu.adapter.name.clone(),
            reason: "a software adapter says nothing about a GPU; --allow-software runs it anyway"
                .into(),
        });
    }
    let mut options = AbOptions::new(gpu.adapter.software);
    if let Some(seconds) = opts.time_out {
        options.time_out = std::time::Duration::from_secs(seconds);
    }
    let (shape, mixed, (comparison, blocks)) = if opts.kernel == "decode" {
        if opts.shape.is_some() {
            return Err(Error::Usage("--shape does not go with `ab decode`".into()));
        }
        let model = opts
            .model
            .as_deref()
            .ok_or_else(|| Error::Usage("`lathe ab decode` needs --model FILE".into()))?;
        let sides = super::decode::ab(&gpu, model, [&opts.a, &opts.b], &options)?;
        (recorded_name(model), is_file(&opts.a) != is_file(&opts.b), sides)
    } else {
        let (kernel, _) = super::named(Some(&opts.kernel))?.swap_remove(0);
        let sides = [super::place(kernel, &opts.a)?, super::place(kernel, &opts.b)?];
        let problem = super::problem(kernel, opts.shape.as_deref())?;
        for (variant, file) in sides.iter().filter(|_| !opts.one_shape) {
            if let Some(file) = file {
                super::check_others(&gpu, kernel, variant, file)?;
            }
        }
        let bench_options = BenchOptions::of(&gpu);
        let plan = |side: usize| -> Result<Plan> {
            let (variant, file) = &sides[side];
            let plan = super::plan_of(kernel, variant, &problem.shape, &gpu.caps, file.as_deref());
            plan.map_err(|e| match e {
                PlanError::Unavailable(reason) => Error::Unavailable {
                    what: format!("{}/{}", kernel.name, [&opts.a, &opts.b][side]),
                    adapter: gpu.adapter.name.clone(),
                    reason,
                },
                PlanError::Reflect(e) => e.into(),
            })
        };
        let (pipelines, rotate) = (Pipelines::default(), bench_options.rotate_bytes);
        let plans = [plan(0)?, plan(1)?];
        let mixed = plans[0].trusted != plans[1].trusted;
        let [plan_a, plan_b] = plans;
        let case = Case::new(&gpu, plan_a, &problem, bench_options.seed)?;
        let mut a = Bench::new(&gpu, &pipelines, case, rotate)?.validated()?;
        let mut b = a.beside(&pipelines, plan_b)?.validated()?;
        let outcome = ab::kernels(&mut a, &mut b, &bench_options, &options)?;
        (kernel.show(&problem), mixed, outcome)
    };
    if mixed && gpu.checks == Checks::Files {
        eprintln!(
            "lathe: a user's file carries wgpu's run-time checks, a built-in variant does not; \
             --runtime-checks (both) or --unchecked-files (neither) compares like with like"
        );
    }
    let median = |times: Vec<f64>| stats::summarise(&times).median;
    let body = Ab {
        kernel: opts.kernel.clone(),
        shape,
        a: opts.a.clone(),
        b: opts.b.clone(),
        a_us: median(blocks.iter().flat_map(|b| b.a).collect()),
        b_us: median(blocks.iter().flat_map(|b| b.b).collect()),
        verdict: comparison.verdict.into(),
        ratio: comparison.ratio,
        control: comparison.control,
        indifference: comparison.indifference,
        flags: opts.one_shape.then_some(Flag::OneShape.into()).into_iter().collect(),
        blocks: comparison.blocks,
    };
    let mut environment = environment(&gpu);
    environment.timestamp_quantum_ns = Span::new(&gpu)?.quantum_ns(&gpu)?;
    let record = Record::new(environment, Body::Ab(body.clone()));
    if let Some(path) = &opts.save {
        record.write(path)?;
        eprintln!("saved {}", path.display());
    }
    if global.json {
        match serde_json::to_string_pretty(&record) {
            Ok(text) => println!("{text}"),
            Err(e) => eprintln!("lathe: cannot write JSON: {e}"),
        }
    } else {
        print(&body, &comparison);
    }
    match comparison.verdict {
        Verdict::Inconclusive => Err(Error::Inconclusive(format!(
            "{} against {}: {} blocks do not tell",
            opts.b, opts.a, comparison.blocks
        ))),
        _ => Ok(()),
    }
}

fn print(ab: &Ab, comparison: &Comparison) {
    println!("{} {}", ab.kernel, ab.shape);
    println!("A  {:<28} {}", ab.a, table::micros(ab.a_us));
    println!("B  {:<28} {}", ab.b, table::micros(ab.b_us));
    let show = |r: &Ratio| format!("{:.4}  [{:.4}, {:.4}]", r.median, r.low, r.high);
    println!("B / A     {}", show(&ab.ratio));
    println!("A / A     {}   control, same run", show(&ab.control));
    println!(
        "B is {} ({} blocks of 8 samples; within ±{:.2} % counts as the same)",
        comparison.verdict,
        ab.blocks,
        100.0 * ab.indifference
    );
}
