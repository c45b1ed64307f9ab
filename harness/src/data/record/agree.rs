//! Figures of a record follow from the samples beside them: pages print the ones, the gate judges the
//! others. One that does not was changed by hand.

use super::generation::{GenerationTest, SuiteConfig};
use super::{Ab, AbBlock, BenchCase, Body, Profile, Verdict, Word};
use crate::data::stats;
use crate::data::{Ratio, paired};

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
    if (said - is).abs() <= tolerance * is.abs() {
        return Ok(());
    }
    Err(format!("{what} is {said}, {whose} {is}; the record was changed by hand: measure again"))
}

fn case(of: &BenchCase) -> Result<(), String> {
    let what = |name: &str| format!("{}/{} {}: {name}", of.kernel, of.variant, of.shape);
    let stages = of.stages.iter().map(|stage| (stage.entry.as_str(), &stage.cold));
    let timings = [("cold", &of.cold), ("warm", &of.warm)].into_iter().chain(stages);
    let overlapped = of.overlapped.iter().map(|timing| ("overlapped", timing));
    for (name, timing) in timings.chain(overlapped) {
        let is = stats::summarise(&timing.samples_us).median;
        let what = what(&format!("median_us of {name}"));
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
    let counted = |blocks: usize| match blocks == ab.samples.len() {
        true => Ok(()),
        false => Err(format!("{} {blocks}, of {} samples", what("blocks"), ab.samples.len())),
    };
    let ratio = |what: String, said: &Ratio, blocks: &[AbBlock]| {
        let of = |times: &[f64; 4]| times.iter().map(|us| us.ln()).sum::<f64>() / 4.0;
        let logs: Vec<f64> = blocks.iter().map(|b| of(&b.b_us) - of(&b.a_us)).collect();
        // Fewer have no interval, and the ratio says that nothing is known.
        if *said == Ratio::UNKNOWN {
            return Ok(());
        }
        agree(&what, said.median, paired::median(&logs).exp(), "its blocks' median", 1e-6)
    };
    let time = |what: String, said: f64, blocks: &[AbBlock], of: fn(&AbBlock) -> [f64; 4]| {
        let times: Vec<f64> = blocks.iter().flat_map(of).collect();
        agree(&what, said, stats::summarise(&times).median, "its samples' median", 1e-6)
    };
    counted(ab.blocks)?;
    if ab.processes.is_empty() {
        ratio(what("ratio"), &ab.ratio, &ab.samples)?;
        time(what("a_us"), ab.a_us, &ab.samples, |b| b.a_us)?;
        time(what("b_us"), ab.b_us, &ab.samples, |b| b.b_us)?;
        return match lies_where_said(&ab.verdict, &ab.ratio, ab.indifference) {
            true => Ok(()),
            false => Err(format!(
                "{} {}, but the ratio is {} and ±{} counts as the same; the record was changed by \
                 hand: measure again",
                what("verdict"),
                ab.verdict,
                ab.ratio,
                ab.indifference
            )),
        };
    }
    counted(ab.processes.iter().map(|process| process.blocks).sum())?;
    let mut rest = ab.samples.as_slice();
    for (nth, process) in ab.processes.iter().enumerate() {
        let what = |name: &str| format!("{} of process {}", what(name), nth + 1);
        let (own, others) = rest.split_at(process.blocks);
        rest = others;
        ratio(what("ratio"), &process.ratio, own)?;
        time(what("a_us"), process.a_us, own, |b| b.a_us)?;
        time(what("b_us"), process.b_us, own, |b| b.b_us)?;
    }
    let logs: Vec<f64> = ab.processes.iter().map(|p| p.ratio.median.ln()).collect();
    let whose = "its processes' median";
    agree(&what("ratio"), ab.ratio.median, paired::median(&logs).exp(), whose, 1e-6)?;
    match ab.processes.iter().all(|process| process.verdict == ab.verdict) {
        false if ab.verdict != Verdict::Inconclusive => Err(format!(
            "{} {}, which not every process says; the record was changed by hand: measure again",
            what("verdict"),
            ab.verdict
        )),
        _ => Ok(()),
    }
}

/// Whether an interval lies where a verdict says: outside of the zone that counts as the same, or
/// inside of it.
fn lies_where_said(verdict: &Word<Verdict>, ratio: &Ratio, indifference: f64) -> bool {
    // What is written as text has lost some last bits.
    let (low, high) = ((1.0 + 1e-9) / (1.0 + indifference), (1.0 + indifference) * (1.0 - 1e-9));
    match verdict {
        Word::Known(Verdict::Faster) => ratio.high <= low,
        Word::Known(Verdict::Slower) => ratio.low >= high,
        Word::Known(Verdict::Same) => {
            ratio.low * (1.0 + 2e-9) >= low && ratio.high <= high * (1.0 + 2e-9)
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
