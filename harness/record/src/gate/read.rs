//! What the kinds of record have in common: cases with times, and what flags a time.

use std::collections::HashMap;

use super::{Case, FLOOR, HOST_RUNS, KERNEL_RUNS, Run, Z95};
use crate::error::{Error, Result};
use crate::record::{
    Bench, BenchCase, Body, Clock, Environment, Flag, Profile, Record, Selected, Timing,
};
use crate::{Word, add_new, paired, stats};

/// Key of the unprofiled step among the cases of a profile.
pub const STEP: &str = "unprofiled step";

/// Fewest samples, or common steps, of a median.
const FEWEST_SAMPLES: usize = 5;

/// Fewest samples whose ranks enclose a median.
const FEWEST_RANKED: usize = 5;

/// One case of one run.
pub(super) struct Measured {
    pub(super) key: String,
    /// Its samples, microseconds, that have nothing to do with each other.
    pub(super) us: Vec<f64>,
    /// Which step each of them is, where the time grows with the step; else empty.
    pub(super) steps: Vec<usize>,
    /// Samples with inputs in the cache.
    pub(super) warm: Vec<f64>,
    /// What ran: equal texts are equal code. None where the record does not say.
    pub(super) source: Option<String>,
    /// Which kernels ran, where that is no part of the key.
    pub(super) kernels: String,
    /// How it was measured: other texts are another measurement.
    pub(super) how: String,
    /// Whether its outputs were verified, or how they failed.
    pub(super) verified: Result<bool, String>,
    /// Why not to trust the times.
    pub(super) flags: Vec<String>,
    /// Fewest samples of a median.
    pub(super) fewest: usize,
    /// Standard deviation from run to run.
    pub(super) run_to_run: f64,
    /// Least threshold.
    pub(super) floor: f64,
}

/// A case of the earlier runs and of the new ones, each with the place of its record on its side.
pub(super) type Sides<'a> = [Vec<(usize, &'a Measured)>; 2];

/// The cases of a record.
pub(super) fn measured(record: &Record) -> Result<Vec<Measured>> {
    let environment = &record.environment;
    let mut cases = match &record.body {
        Body::Bench(bench) => self::bench(bench, environment),
        Body::Profile(profile) => self::profile(profile, environment)?,
        Body::GenerationTests(tests) => super::generation::tests(tests, environment),
        Body::Suite(suite) => super::generation::suite(suite, environment),
        Body::Ab(_) => {
            let text = "an A/B record holds its own comparison; compare bench or profile records";
            return Err(Error::Usage(text.into()));
        }
    };
    let mut seen = std::collections::HashSet::new();
    if let Some(case) = cases.iter().find(|case| !seen.insert(&case.key)) {
        return Err(Error::Usage(format!("{} is twice in one record", case.key)));
    }
    for case in &mut cases {
        case.floor = case.floor.max(FLOOR).max(environment.canary_drift.unwrap_or(0.0).abs());
        if environment.software {
            case.flags.push("of a software adapter".into());
        }
    }
    Ok(cases)
}

/// Refuses two records that are not of the same kind and model; warns of other prompts.
pub(super) fn same_subject(
    first: &Record,
    other: &Record,
    warnings: &mut Vec<String>,
) -> Result<()> {
    match (&first.body, &other.body) {
        (Body::Profile(first), Body::Profile(other)) => {
            let what = |p: &Profile| {
                format!("{} with {} KV after {} prompt tokens", p.model, p.kv, p.prompt_tokens)
            };
            let (was, is) = (what(first), what(other));
            // By what the models are where both records say it: a file may be renamed.
            let same_model = match (&first.identity, &other.identity) {
                (Some(first), Some(other)) => first == other,
                _ => first.model == other.model,
            };
            let how = |p: &Profile| (p.kv.clone(), p.prompt_tokens);
            if !same_model || how(first) != how(other) {
                return Err(Error::Usage(format!("profiles of different decodes: {was} and {is}")));
            }
        }
        (first, other) if first.what() != other.what() => {
            return Err(Error::Usage(format!(
                "one record is of a {}, the other of a {}; nothing to compare",
                first.what(),
                other.what()
            )));
        }
        (first, other) => super::generation::same_subject(first, other, warnings)?,
    }
    Ok(())
}

/// What a record names as without a result.
pub(super) fn failed(record: &Record) -> &[String] {
    match &record.body {
        Body::Bench(bench) => &bench.failed,
        _ => &[],
    }
}

/// Equal code where a record has no hash of it: the same commit, nothing beside it, and the same
/// choice of kernels, `selected` by a tuner among them. None where a file of the user's chose or
/// is a kernel, whose text the record does not have.
pub(super) fn build(environment: &Environment, selected: &[Selected]) -> Option<String> {
    let commit = environment.commit.as_ref().filter(|_| environment.dirty == Some(false))?;
    let words = environment.command.as_deref().unwrap_or_default().split_whitespace();
    let mut choices = String::new();
    let mut hint = false;
    for word in words {
        let chooses = ["--hint", "--runs", "--untuned", "--manifest"]
            .iter()
            .any(|name| word.starts_with(name));
        if hint || chooses {
            if word.contains(".wgsl") || word.starts_with("--manifest") {
                return None;
            }
            choices.push_str(&format!(" {word}"));
        }
        hint = matches!(word, "--hint" | "--runs");
    }
    for Selected { kernel, variant, shape, constants, .. } in selected.iter().filter(|s| s.tuned) {
        choices.push_str(&format!(" {kernel}/{variant} {shape} {constants:?}"));
    }
    Some(format!("{commit}{choices}"))
}

fn bench(bench: &Bench, environment: &Environment) -> Vec<Measured> {
    let of = |case: &BenchCase| {
        // What says how a kernel runs counts only where the other side runs otherwise.
        let is_how = |flag: &Word<Flag>| {
            [Flag::WallClock, Flag::RuntimeChecksOn].into_iter().any(|how| *flag == how)
        };
        let (how, flags): (Vec<_>, Vec<_>) = case.flags.iter().partition(|flag| is_how(flag));
        let mut how = how.iter().map(|flag| format!(", {flag}")).collect::<String>();
        if case.seed_a_sample {
            how.push_str(", a seed each sample");
        }
        let mut flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        if !case.cold.settled && !case.flags.contains(&Flag::NotSettled.into()) {
            flags.push(Flag::NotSettled.to_string());
        }
        let gpu = case.clock == Clock::Gpu;
        let resolution = match environment.timestamp_quantum_ns {
            Some(ns) if gpu => ns / 1e3 / (case.cold.median_us * case.cold.dispatches as f64),
            _ => 0.0,
        };
        Measured {
            key: case.key(),
            us: case.cold.samples_us.clone(),
            steps: Vec::new(),
            warm: case.warm.samples_us.clone(),
            source: Some(case.source.clone()),
            kernels: String::new(),
            how: format!(
                "{} clock, wgpu's run-time checks {}{how}",
                case.clock, environment.runtime_checks
            ),
            verified: Ok(true),
            flags,
            fewest: FEWEST_SAMPLES,
            run_to_run: if gpu { KERNEL_RUNS } else { HOST_RUNS },
            floor: moved(&case.cold).max(resolution),
        }
    };
    bench.cases.iter().map(of).collect()
}

/// How far the second half of the samples lies from the first: a run that moves by this much
/// while it is measured is as far from the next run.
fn moved(timing: &Timing) -> f64 {
    let (first, second) = timing.samples_us.split_at(timing.samples_us.len() / 2);
    if first.is_empty() || !timing.samples_us.iter().all(paired::usable) {
        return 0.0;
    }
    (paired::median(second) / paired::median(first)).ln().abs().exp_m1()
}

/// The unprofiled step, and the operations of a profile, each summed over the layers of a step.
fn profile(profile: &Profile, environment: &Environment) -> Result<Vec<Measured>> {
    if let Some(step) = profile.steps.iter().find(|step| step.us.len() != profile.ops.len()) {
        return Err(Error::Usage(format!(
            "{}: the step at position {} has {} times for {} operations",
            profile.model,
            step.position,
            step.us.len(),
            profile.ops.len()
        )));
    }
    let build = build(environment, &profile.selected);
    let series = |key: &str, kernels: String, steps: Vec<usize>, us: Vec<f64>| Measured {
        key: key.into(),
        us,
        steps,
        warm: Vec::new(),
        source: build.as_ref().map(|build| format!("{build} {kernels}")),
        kernels,
        how: format!("wgpu's run-time checks {}", environment.runtime_checks),
        verified: Ok(profile.verified.is_some()),
        flags: Vec::new(),
        fewest: FEWEST_SAMPLES,
        run_to_run: KERNEL_RUNS,
        floor: 0.0,
    };
    let every = profile.unprofiled.steps_per_submit.max(1);
    let (steps, us) = submissions(&profile.unprofiled.step_ms, every);
    let mut step = series(STEP, String::new(), steps, us);
    step.run_to_run = HOST_RUNS;
    step.how.push_str(&format!(", {every} steps a submission"));
    let mut cases = vec![step];
    let mut ops: Vec<&str> = Vec::new();
    add_new(&mut ops, profile.ops.iter().map(|op| op.op.as_str()));
    for name in ops {
        let mut kernels = Vec::new();
        let mut members = Vec::new();
        for (index, op) in profile.ops.iter().enumerate().filter(|(_, op)| op.op == name) {
            members.push(index);
            add_new(&mut kernels, [format!("{}/{}", op.kernel, op.variant)]);
        }
        let us = |of: &[f64]| members.iter().map(|index| of[*index]).sum();
        let us: Vec<f64> = profile.steps.iter().map(|step| us(&step.us)).collect();
        let steps = profile.steps.iter().map(|step| step.position).collect();
        let middle = if us.is_empty() { 0.0 } else { paired::median(&us) };
        let mut case = series(name, kernels.join(", "), steps, us);
        if let Some(ns) = environment.timestamp_quantum_ns.filter(|_| middle > 0.0) {
            case.floor = ns / 1e3 * members.len() as f64 / middle;
        }
        cases.push(case);
    }
    Ok(cases)
}

/// Steps of one submission share its time: one sample, however many they are.
fn submissions(step_ms: &[f64], every: usize) -> (Vec<usize>, Vec<f64>) {
    let time = |steps: &[f64]| 1e3 * steps.iter().sum::<f64>() / steps.len() as f64;
    (0..).step_by(every).zip(step_ms.chunks(every).map(time)).unzip()
}

/// A case of all runs, each with the place of its record on its side.
pub(super) fn case(key: &str, measured: &Sides, failed: &[String]) -> Case {
    let sides = &measured.each_ref().map(|side| trusted(side));
    let all = || sides.iter().flatten().map(|(_, case)| *case);
    let mut case = Case {
        key: key.into(),
        present: [0, 1].map(|side| !sides[side].is_empty()),
        changed: true,
        wrong: wrong(key, measured, failed),
        run_to_run: all().map(|case| case.run_to_run).fold(0.0, f64::max),
        floor: all().map(|case| case.floor).fold(0.0, f64::max),
        ..Case::default()
    };
    for (side, runs) in runs(sides, |case| &case.us).into_iter().enumerate() {
        let us: Vec<f64> = runs.iter().map(|(_, us)| *us).collect();
        case.us[side] = (!us.is_empty()).then(|| paired::median(&us));
        case.runs[side] = runs.into_iter().map(|(run, _)| run).collect();
    }
    let [Some((_, base)), Some((_, new))] = [0, 1].map(|side| sides[side].first()) else {
        return case;
    };
    case.changed = base.source.is_none() || all().any(|case| case.source != base.source);
    case.unclear = unclear(sides, base, &case.runs);
    let warm =
        runs(sides, |case| &case.warm).map(|runs| runs.into_iter().map(|(r, _)| r).collect());
    case.warm = super::ratio(&warm, super::variance(&warm, case.run_to_run));
    if base.kernels != new.kernels {
        case.notes.push(format!("{} became {}", base.kernels, new.kernels));
    }
    let left_out = measured.iter().flatten().count() - all().count();
    if left_out > 0 {
        case.notes.push(format!("{left_out} flagged run(s) left out"));
    }
    let most = all().map(|case| case.steps.len()).max().unwrap_or_default();
    let common = common_steps(sides).len();
    if common < most {
        case.notes.push(format!("{common} of {most} steps in both"));
    }
    if all().all(|case| case.verified == Ok(false)) {
        case.notes.push("not verified".into());
    }
    case
}

/// The runs of a side without those that carry a flag, as long as there are others: measuring
/// again then mends a case that was unclear.
fn trusted<'a>(side: &[(usize, &'a Measured)]) -> Vec<(usize, &'a Measured)> {
    let without: Vec<_> = side.iter().filter(|(_, case)| case.flags.is_empty()).copied().collect();
    if without.is_empty() { side.to_vec() } else { without }
}

/// Why the times of both sides are not to be trusted, or not to be compared.
fn unclear(sides: &Sides, first: &Measured, runs: &[Vec<Run>; 2]) -> Vec<String> {
    let mut why = Vec::new();
    for ((name, side), runs) in ["earlier", "new"].into_iter().zip(sides).zip(runs) {
        let mut of_side: Vec<&str> = Vec::new();
        let said = side.iter().flat_map(|(_, case)| &case.flags);
        add_new(&mut of_side, said.map(String::as_str));
        if side.iter().any(|(_, case)| case.source != side[0].1.source) {
            of_side.push("of more than one build");
        }
        let few =
            format!("fewer than {} samples, or one that is not a positive number", first.fewest);
        if runs.len() < side.len() {
            of_side.push(&few);
        }
        if side.iter().any(|(_, case)| case.verified.is_err()) {
            of_side.push("verification failed");
        }
        if !of_side.is_empty() {
            why.push(format!("{name} run: {}", of_side.join(", ")));
        }
    }
    let verified = |side: usize| sides[side].iter().all(|(_, case)| case.verified == Ok(true));
    if verified(0) && !verified(1) {
        why.push("the earlier run was verified, the new one was not".into());
    }
    let all = || sides.iter().flatten().map(|(_, case)| *case);
    if let Some(other) = all().find(|case| case.how != first.how) {
        why.push(format!("measured differently: {} and {}", first.how, other.how));
    }
    why
}

/// Why a case has no right result in the new runs.
fn wrong(key: &str, sides: &Sides, failed: &[String]) -> Option<String> {
    let is_of =
        |text: &&String| text.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', ':']));
    let of = |side: usize| sides[side].iter().find_map(|(_, case)| case.verified.clone().err());
    failed.iter().find(is_of).cloned().or_else(|| of(1).filter(|_| of(0).is_none()))
}

/// The steps that every run has, with the mean of the earlier runs' times at each.
fn common_steps(sides: &Sides) -> HashMap<usize, f64> {
    let all = sides.iter().flatten().count();
    let mut seen: HashMap<usize, (usize, f64)> = HashMap::new();
    for (side, runs) in sides.iter().enumerate() {
        for (step, us) in runs.iter().flat_map(|(_, case)| case.steps.iter().zip(&case.us)) {
            let (count, sum) = seen.entry(*step).or_default();
            *count += 1;
            *sum += if side == 0 { us.ln() / sides[0].len() as f64 } else { 0.0 };
        }
    }
    seen.retain(|_, (count, _)| *count == all);
    seen.into_iter().map(|(step, (_, log))| (step, log.exp())).collect()
}

/// What each run says of a case, with its median time; without the runs that say nothing.
fn runs(sides: &Sides, times: fn(&Measured) -> &Vec<f64>) -> [Vec<(Run, f64)>; 2] {
    let common = common_steps(sides);
    let of = |(record, case): &(usize, &Measured)| {
        let us = times(case);
        // A step is held against the same step, since attention grows with the position.
        let (us, ratios): (Vec<f64>, Vec<f64>) = match case.steps.is_empty() {
            true => us.iter().map(|us| (*us, *us)).unzip(),
            false => {
                let steps = case.steps.iter().zip(us);
                steps.filter_map(|(step, us)| Some((*us, us / common.get(step)?))).unzip()
            }
        };
        if us.len() < case.fewest || !us.iter().chain(&ratios).all(paired::usable) {
            return None;
        }
        let summary = stats::summarise(&ratios);
        let error = match ratios.len() {
            // Few samples have no ranks that enclose the median: the error of a normal median.
            n if n < FEWEST_RANKED => {
                let (mean, sd) = stats::mean_sd(&ratios);
                std::f64::consts::FRAC_PI_2.sqrt() * sd / mean / (n as f64).sqrt()
            }
            _ => summary.noise / Z95,
        };
        let run = Run { record: *record, log: summary.median.ln(), error };
        Some((run, paired::median(&us)))
    };
    [0, 1].map(|side| sides[side].iter().filter_map(of).collect())
}
