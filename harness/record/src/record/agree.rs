//! Figures of a record follow from the samples beside them: pages print the ones, the gate judges
//! the others. One that does not was changed by hand.

use super::generation::{GenerationTest, SuiteConfig};
use super::{Ab, AbBlock, AbProcess, BenchCase, Body, Profile};
use crate::paired::{self, Block, Options, Verdict, compare};
use crate::processes::over_processes;
use crate::{Ratio, Word, stats};

/// Refuses a figure that is another than its samples say.
pub(super) fn figures(body: &Body) -> Result<(), String> {
    match body {
        Body::Bench(bench) => bench.cases.iter().try_for_each(case),
        Body::Ab(ab) => sides(ab),
        Body::Profile(of) => profile(of),
        Body::GenerationTests(of) => of.tests.iter().try_for_each(test),
        Body::Suite(suite) => suite.models.iter().try_for_each(|model| {
            model.configs.iter().try_for_each(|(name, config)| {
                let what = |figure: &str| format!("{} {name}: {figure}", model.model.file());
                configuration(config, suite.steps_per_submit, &what)
            })
        }),
    }
}

/// An error where a record says another figure than what follows from the rest of it.
fn agree(what: &str, said: f64, is: f64, whose: &str, tolerance: f64) -> Result<(), String> {
    // What is no number does not agree either.
    let same = said.is_finite() && is.is_finite() && (said - is).abs() <= tolerance * is.abs();
    holds(same, || format!("{what} is {said}, {whose} {is}"))
}

/// An error, in these words, where something does not hold.
fn holds(it: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    match it {
        true => Ok(()),
        false => Err(format!("{}; the record was changed by hand: measure again", wrong())),
    }
}

fn case(of: &BenchCase) -> Result<(), String> {
    let what = |name: &str| format!("{}: {name}", of.key());
    let stages =
        of.stages.iter().filter_map(|stage| Some((stage.entry.as_str(), stage.cold.as_ref()?)));
    let timings = [("cold", &of.cold), ("warm", &of.warm)].into_iter().chain(stages);
    let overlapped = of.overlapped.iter().map(|timing| ("overlapped", timing));
    for (name, timing) in timings.chain(overlapped) {
        let what = what(&format!("median_us of {name}"));
        holds(!timing.samples_us.is_empty(), || format!("{what} rests on no sample"))?;
        let is = stats::summarise(&timing.samples_us).median;
        agree(&what, timing.median_us, is, "its samples' median", 1e-6)?;
    }
    let us = of.cold.median_us;
    agree(&what("gb_s"), of.gb_s, of.bytes / us / 1e3, "by its median", 1e-6)?;
    if let Some(said) = of.tflop_s {
        agree(&what("tflop_s"), said, of.flops / us / 1e6, "by its median", 1e-6)?;
    }
    Ok(())
}

/// Both sides of an A/B run. Records from before samples were kept have none.
fn sides(ab: &Ab) -> Result<(), String> {
    if ab.samples.is_empty() {
        return Ok(());
    }
    let what = |name: &str| format!("{} {}: {name}", ab.kernel, ab.shape);
    let count = ab.samples.len();
    holds(ab.blocks == count, || format!("{} {}, of {count} samples", what("blocks"), ab.blocks))?;
    let processes = match ab.processes.as_slice() {
        [] => vec![ab.into()],
        several => several.to_vec(),
    };
    let mut rest = ab.samples.as_slice();
    for (nth, process) in processes.iter().enumerate() {
        let of_process = |name: &str| match ab.processes.len() {
            0 => what(name),
            _ => format!("{} of process {}", what(name), nth + 1),
        };
        let Some((own, others)) = rest.split_at_checked(process.blocks) else {
            let (name, left) = (of_process("blocks"), rest.len());
            return holds(false, || format!("{name} {}, of {left} samples", process.blocks));
        };
        rest = others;
        // Of processes the zone that all of them together have is the widest.
        let zone = if ab.processes.is_empty() { ab.indifference } else { 0.0 };
        side(process, own, (ab.confidence, zone), &of_process)?;
    }
    if ab.processes.is_empty() {
        return Ok(());
    }
    holds(rest.is_empty(), || format!("{} of no process: {}", what("blocks"), rest.len()))?;
    let middle = |of: fn(&AbProcess) -> f64| {
        paired::median(&ab.processes.iter().map(of).collect::<Vec<_>>())
    };
    agree(&what("a_us"), ab.a_us, middle(|p| p.a_us), "its processes' median", 1e-6)?;
    agree(&what("b_us"), ab.b_us, middle(|p| p.b_us), "its processes' median", 1e-6)?;
    same_ratio(&what("ratio"), &ab.ratio, &over_processes(ab.processes.iter().map(|p| p.ratio)))?;
    let controls = over_processes(ab.processes.iter().map(|p| p.control));
    same_ratio(&what("control"), &ab.control, &controls)?;
    let all_say = ab.processes.iter().all(|process| process.verdict == ab.verdict);
    holds(all_say || ab.verdict == Verdict::Inconclusive, || {
        format!("{} {}, which not every process says", what("verdict"), ab.verdict)
    })
}

/// What one process says, against its blocks. Of records from before the sign test's intervals only
/// the medians follow, and that the verdict lies where it says.
fn side(
    of: &AbProcess,
    own: &[AbBlock],
    (confidence, zone): (Option<f64>, f64),
    what: &dyn Fn(&str) -> String,
) -> Result<(), String> {
    let time = |name: &str, said: f64, times: fn(&AbBlock) -> [f64; 4]| {
        let times: Vec<f64> = own.iter().flat_map(times).collect();
        agree(&what(name), said, stats::summarise(&times).median, "its samples' median", 1e-6)
    };
    time("a_us", of.a_us, |b| b.a_us)?;
    time("b_us", of.b_us, |b| b.b_us)?;
    let verdict = |is: String| format!("{} {}, {is}", what("verdict"), of.verdict);
    let blocks: Option<Vec<Block>> = own.iter().map(AbBlock::block).collect();
    if let (Some(blocks), Some(confidence)) = (blocks, confidence) {
        let is = compare(&blocks, &Options { confidence, ..Options::default() });
        same_ratio(&what("ratio"), &of.ratio, &is.ratio)?;
        same_ratio(&what("control"), &of.control, &is.control)?;
        return holds(of.verdict == is.verdict, || {
            verdict(format!("by its blocks {}", is.verdict))
        });
    }
    if of.ratio != Ratio::UNKNOWN {
        let log = |times: &[f64; 4]| times.iter().map(|us| us.ln()).sum::<f64>() / 4.0;
        let logs: Vec<f64> = own.iter().map(|b| log(&b.b_us) - log(&b.a_us)).collect();
        let is = paired::median(&logs).exp();
        agree(&what("ratio"), of.ratio.median, is, "its blocks' median", 1e-6)?;
    }
    // No run asked for less than this counts as the same.
    let zone = zone.max(Options::default().indifference);
    holds(lies_where_said(&of.verdict, &of.ratio, zone), || {
        verdict(format!("but the ratio is {}, ±{zone} counts as the same", of.ratio))
    })
}

/// An error where an interval is another than it should be.
fn same_ratio(what: &str, said: &Ratio, is: &Ratio) -> Result<(), String> {
    let ends = [
        ("median", said.median, is.median),
        ("low", said.low, is.low),
        ("high", said.high, is.high),
    ];
    ends.into_iter().try_for_each(|(name, said, is)| {
        agree(&format!("{what} ({name})"), said, is, "by its blocks", 1e-6)
    })
}

/// Whether an interval lies where a verdict says: outside of the zone that counts as the same, or
/// inside of it.
fn lies_where_said(verdict: &Word<Verdict>, ratio: &Ratio, zone: f64) -> bool {
    // What is written as text has lost some last bits.
    const SLACK: f64 = 1.0 + 1e-9;
    let (low, high) = (1.0 / (1.0 + zone), 1.0 + zone);
    match verdict {
        Word::Known(Verdict::Faster) => ratio.high <= low * SLACK,
        Word::Known(Verdict::Slower) => ratio.low * SLACK >= high,
        // A process may have had a wider zone.
        Word::Known(Verdict::Same) => {
            let most = (1.0 + zone).max((1.0 + Options::default().indifference).powi(2));
            ratio.low * SLACK >= 1.0 / most && ratio.high <= most * SLACK
        }
        Word::Known(Verdict::Inconclusive) | Word::Other(_) => true,
    }
}

fn profile(of: &Profile) -> Result<(), String> {
    let what = |name: &str| format!("{}: {name}", of.model);
    let us: f64 = of.steps.iter().flat_map(|step| &step.us).sum();
    let is = us / 1e3 / of.steps.len().max(1) as f64;
    let said = of.serialised_ms_per_token;
    agree(&what("serialised_ms_per_token"), said, is, "by its steps", 1e-6)?;
    let (steps, wall) = (&of.unprofiled.step_ms, of.unprofiled.step_ms.iter().sum::<f64>());
    let is = if wall > 0.0 { steps.len() as f64 * 1e3 / wall } else { 0.0 };
    agree(&what("decode_tok_s"), of.unprofiled.decode_tok_s, is, "by its steps", 1e-6)
}

fn test(of: &GenerationTest) -> Result<(), String> {
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
    let what = |name: &str| format!("{} {}: {name}", of.model.file(), of.test);
    let ns: Vec<f64> = of.samples_ns.iter().map(|ns| *ns as f64).collect();
    // Whole nanoseconds.
    let (is, whole) = (mean(&ns), 1.0 / mean(&ns).max(1.0));
    agree(&what("avg_ns"), of.avg_ns as f64, is, "its samples'", whole)?;
    agree(&what("avg_ts"), of.avg_ts, mean(&of.samples_ts), "its samples'", 1e-6)?;
    let Some(beside) = &of.beside else { return Ok(()) };
    let runs = &beside.samples_ts;
    if runs.len() != ns.len() || !runs.iter().all(|ts| ts.is_finite() && *ts > 0.0) {
        return Err(format!("{}: not a speed a repetition", what("beside.samples_ts")));
    }
    agree(&what("beside.avg_ts"), beside.avg_ts, mean(runs), "its samples'", 1e-6)
}

/// A configuration of a suite.
fn configuration(
    of: &SuiteConfig,
    steps_per_submit: usize,
    what: &dyn Fn(&str) -> String,
) -> Result<(), String> {
    let lengths = [of.prompt_tokens, of.generated_tokens];
    let is = SuiteConfig::of(lengths, None, steps_per_submit, of.runs.clone());
    type Figure = (&'static str, fn(&SuiteConfig) -> f64);
    let figures: [Figure; 8] = [
        ("ttft_ms", |c| c.ttft_ms),
        ("prefill_tok_s", |c| c.prefill_tok_s),
        ("e2e_tok_s", |c| c.e2e_tok_s),
        ("decode_tok_s", |c| c.decode_tok_s),
        ("one_step_e2e_tok_s", |c| c.one_step_e2e_tok_s),
        ("one_step_decode_tok_s", |c| c.one_step_decode_tok_s),
        ("p50_ms", |c| c.p50_ms),
        ("p95_ms", |c| c.p95_ms),
    ];
    figures.into_iter().try_for_each(|(name, figure)| {
        agree(&what(name), figure(of), figure(&is), "by its runs", 1e-6)
    })
}
