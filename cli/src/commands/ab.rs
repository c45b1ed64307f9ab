//! `lathe ab`: is B really faster than A?

use std::sync::Arc;

use clap::Args;
use lathe_harness::data::Ratio;
use lathe_harness::data::paired::{FEWEST_BLOCKS, Verdict, usable};
use lathe_harness::data::record::{Ab, AbSide, Body, Record};
use lathe_harness::decode::{self, model::recorded_name};
use lathe_harness::error::{Error, Result};
use lathe_harness::gpu::{Checks, Gpu, Span};
use lathe_harness::measure::ab::{self, AbOptions};
use lathe_harness::measure::{BenchOptions, environment};
use lathe_harness::plan::select::{Hints, select};
use lathe_harness::plan::shapes;
use lathe_harness::plan::target::Target;
use lathe_harness::plan::user::is_file;
use lathe_kernels::Problem;

use crate::global::Global;
use crate::processes::Processes;
use crate::saved::{Saved, refuse_software};
use crate::{out, table};

#[derive(Debug, Args)]
pub(crate) struct Opts {
    /// KERNEL, or `decode` for whole steps
    kernel: String,
    /// First side: VARIANT, `selected` for the one that decode takes, or [VARIANT=]FILE.wgsl, a
    /// file in that variant's place (else the first's); for `decode` KERNEL=VARIANT,
    /// KERNEL[/VARIANT]=FILE.wgsl, or weights=f16 (any type of `lathe quantize`) for weights
    /// converted while loading, beside weights=as_stored; or persistent=off, persistent=128x512 and so on, as
    /// --persistent of decode
    #[arg(long, value_name = "VARIANT")]
    a: String,
    /// Second side, judged against the first
    #[arg(long, value_name = "VARIANT")]
    b: String,
    /// Shape; what is not named keeps the kernel's default, or is what the files take
    #[arg(long)]
    shape: Option<String>,
    /// GGUF file, for `decode`
    #[arg(long, value_name = "FILE")]
    model: Option<std::path::PathBuf>,
    /// For `decode`: compare nothing with the CPU reference; the verdict then says so
    #[arg(long)]
    no_verify: bool,
    /// Seconds of measuring after which the run ends whatever is known; checks and calibration come
    /// before them [default: 60; 3 on a software adapter]
    #[arg(long, value_name = "SECONDS")]
    time_out: Option<u64>,
    #[command(flatten)]
    processes: Processes,
    /// Draw inputs from this seed, and not from a new one
    #[arg(long)]
    seed: Option<u64>,
    /// Save the run as a record; an existing file is not overwritten
    #[arg(long, value_name = "FILE")]
    save: Option<std::path::PathBuf>,
    /// Let a software adapter give a verdict
    #[arg(long)]
    allow_software: bool,
}

pub(crate) fn run(global: &Global, opts: &Opts) -> Result<()> {
    let gpu = Arc::new(global.open()?);
    refuse_software(&gpu, opts.allow_software, "a speed verdict", "runs")?;
    let saved = Saved::new(opts.save.as_deref())?;
    if let Some(record) = opts.processes.record()? {
        return report(global, saved, &record);
    }
    let mut environment = environment(&gpu);
    let mut options = AbOptions::new(gpu.adapter.software);
    if let Some(seconds) = opts.time_out {
        options.time_out = std::time::Duration::from_secs(seconds);
    }
    let mut names = [opts.a.clone(), opts.b.clone()];
    let (shape, mixed, verified, sides, outcome) = if opts.kernel == "decode" {
        if opts.shape.is_some() {
            return Err(Error::Usage("--shape does not go with `ab decode`".into()));
        }
        let model = opts
            .model
            .as_deref()
            .ok_or_else(|| Error::Usage("`lathe ab decode` needs --model FILE".into()))?;
        let sides = [names[0].as_str(), &names[1]];
        let (outcome, verified) =
            decode::ab::decode(&gpu, model, sides, &options, !opts.no_verify)?;
        (recorded_name(model), is_file(sides[0]) != is_file(sides[1]), verified, None, outcome)
    } else {
        let kernel = Target::one(&opts.kernel)?.kernel;
        let text = opts.shape.as_deref().unwrap_or_default();
        let mut problem = shapes::one(kernel, Some(text))?;
        // What --shape does not name is moved to what the sides that are files take.
        for name in names.iter().filter(|name| is_file(name)) {
            let file = Target::side(kernel, name)?;
            let moved = shapes::filled(vec![problem], text, &file, &gpu.caps)?;
            problem = moved.into_iter().next().expect("one of one");
        }
        for name in names.iter_mut().filter(|name| *name == SELECTED) {
            *name = selected(kernel, &problem, &gpu)?;
        }
        let sides = [Target::side(kernel, &names[0])?, Target::side(kernel, &names[1])?];
        let mut bench = BenchOptions::of(&gpu);
        bench.seed = opts.seed.unwrap_or(bench.seed);
        environment.seed = Some(bench.seed);
        let report = ab::subjects(&gpu, &sides, &problem, &bench, &options)?;
        (kernel.show(&problem), report.mixed, None, Some(report.sides), report.outcome)
    };
    if mixed && gpu.checks == Checks::Files {
        eprintln!(
            "lathe: a user's file carries wgpu's run-time checks, a built-in variant does not; \
             --runtime-checks (both) or --unchecked-files (neither) compares like with like"
        );
    }
    let ab::Outcome { blocks, throttled, drift, flags, .. } = outcome;
    environment.canary_drift = drift;
    let (a_side, b_side) = sides.map(|[a, b]| (a, b)).unzip();
    let [a, b] = names;
    let body = Ab {
        kernel: opts.kernel.clone(),
        shape,
        a,
        b,
        a_side,
        b_side,
        samples: blocks,
        verified,
        flags,
        throttled,
        ..Ab::default()
    };
    let body = body.settled().map_err(Error::CheckFailed)?;
    environment.timestamp_quantum_ns = Span::new(&gpu)?.timestamp_step_ns(&gpu)?;
    if let Some(machine) = &mut environment.machine {
        machine.gpu.extend(gpu.state());
    }
    report(global, saved, &Record::new(environment, Body::Ab(body)))
}

/// The side that stands for the variant that decode takes.
const SELECTED: &str = "selected";

/// The variant that decode takes for a problem on this adapter. Tuned choices do not count: a
/// variant that is named has the constants of its declaration.
fn selected(
    kernel: &'static lathe_kernels::Kernel,
    problem: &Problem,
    gpu: &Gpu,
) -> Result<String> {
    let selection = select(kernel, &problem.shape, &gpu.caps, &Hints::new(), None)
        .map_err(|e| Error::Usage(e.to_string()))?;
    Ok(selection.plan.variant)
}

/// Saves and prints a record; an error where it has no verdict.
fn report(global: &Global, saved: Saved<'_>, record: &Record) -> Result<()> {
    let Body::Ab(ab) = &record.body else { return Ok(()) };
    saved.end(global, record, || print(ab))?;
    if ab.found.verdict == Verdict::Inconclusive {
        let what = match ab.processes.len() {
            n if n > 0 && ab.found.ratio != Ratio::UNKNOWN => format!("{n} processes do not agree"),
            _ => no_verdict(ab),
        };
        return Err(Error::Inconclusive(format!("{} against {}: {what}", ab.b, ab.a)));
    }
    Ok(())
}

/// Reason why one run has no verdict.
fn no_verdict(ab: &Ab) -> String {
    let blocks = match ab.blocks {
        1 => "1 block".to_owned(),
        n => format!("{n} blocks"),
    };
    if ab.samples.iter().flat_map(|block| block.a.iter().chain(&block.b)).any(|us| !usable(us)) {
        return format!("in {blocks} a time is not a positive number");
    }
    let fewest = ab.processes.iter().map(|process| process.blocks).min().unwrap_or(ab.blocks);
    match ab.found.ratio {
        Ratio::UNKNOWN if fewest < FEWEST_BLOCKS => {
            let each = if ab.processes.is_empty() { "" } else { " of each process" };
            format!("{blocks} in this time; a verdict needs {FEWEST_BLOCKS}{each}: see --time-out")
        }
        _ => format!("{blocks} do not tell"),
    }
}

fn print(ab: &Ab) {
    let shape = shapes::brief(&ab.kernel, &ab.shape);
    outln!("{}", format!("{} {shape}", ab.kernel).trim_end());
    let exact = |side: &Option<AbSide>| match side {
        Some(s) => format!("   NMSE {:.1e} of at most {:.0e}", s.nmse, s.nmse_bound),
        None => String::new(),
    };
    outln!("A  {:<28} {}{}", ab.a, table::micros(ab.found.a_us), exact(&ab.a_side));
    outln!("B  {:<28} {}{}", ab.b, table::micros(ab.found.b_us), exact(&ab.b_side));
    outln!("B / A     {}", ab.found.ratio);
    outln!("A / A     {}   control, same run", ab.found.control);
    if let (Some(a), Some(b)) = (&ab.a_side, &ab.b_side) {
        let (side, other, high, low) = match a.nmse > b.nmse {
            true => ("A", "B", a.nmse, b.nmse),
            false => ("B", "A", b.nmse, a.nmse),
        };
        // Below this a side is exact but for the last bits of f32.
        let exact = low < 1e-13;
        if high > 10.0 * low.max(1e-13) {
            match exact {
                true => outln!("{other} is exact, {side} is not: it rounds, or does less"),
                false => outln!(
                    "{side} errs {:.0} times as much as {other}: it rounds more, or does less",
                    high / low
                ),
            }
        }
    }
    let how = match &ab.verified {
        Some(v) => format!("{} positions verified", v.positions),
        None if ab.kernel == "decode" => "not verified".into(),
        None => "outputs judged".into(),
    };
    let over = match ab.processes.len() {
        0 => "within one run".to_owned(),
        n if ab.found.verdict == Verdict::Inconclusive => format!("over {n} processes"),
        n => format!("in each of {n} processes"),
    };
    let tone = match ab.found.verdict {
        Verdict::Faster | Verdict::Same => out::Tone::Good,
        Verdict::Slower => out::Tone::Bad,
        Verdict::Inconclusive => out::Tone::Unclear,
    };
    let rests_on = match ab.found.ratio {
        Ratio::UNKNOWN => no_verdict(ab),
        _ => format!(
            "{} blocks of 8 samples; within ±{:.2} % counts as the same",
            ab.blocks,
            100.0 * ab.found.indifference
        ),
    };
    let said = format!("B is {} {over} ({rests_on}; {how})", ab.found.verdict);
    out::verdict(tone, &said);
    if ab.throttled > 0 {
        outln!("{} blocks dropped: the driver held the clocks down", ab.throttled);
    }
    if !ab.flags.is_empty() {
        let flags: Vec<_> = ab.flags.iter().map(ToString::to_string).collect();
        outln!("doubtful: {}", flags.join(", "));
    }
}
