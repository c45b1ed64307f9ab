//! Rows of each kind of record.

use super::{Kind, Row};
use crate::record::{
    Ab, AbSide, BenchCase, Body, Clock, Decoded, Environment, Flag, GenerationTest, MeasuredModel,
    Profile, Record, Selected, Suite,
};
use crate::{add_new, paired, stats};

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.96;

/// Fewest samples whose ranks enclose a median.
const FEWEST_RANKED: usize = 5;

/// The rows of a record, each with the columns of its run.
pub(super) fn rows(run: &Row, record: &Record) -> Vec<Row> {
    let environment = &record.environment;
    let rows: Vec<Row> = match &record.body {
        Body::Bench(bench) => {
            let cases = bench.cases.iter().map(|case| self::case(run, environment, case));
            cases.chain(bench.failed.iter().map(|text| failed(run, text))).collect()
        }
        Body::Ab(ab) => vec![self::ab(run, ab)],
        Body::Profile(profile) => self::profile(run, environment, profile),
        Body::GenerationTests(of) => {
            let models: Vec<_> = of.tests.iter().map(|test| &test.model).collect();
            let checks = &environment.runtime_checks;
            let how = format!("run-time checks {checks}, prompts {}", of.prompts);
            of.tests.iter().map(|test| self::test(run, &how, test, &models)).collect()
        }
        Body::Suite(suite) => self::suite(run, environment, suite),
    };
    rows.into_iter().map(rounded).collect()
}

/// Six digits: more than any run repeats.
fn rounded(mut row: Row) -> Row {
    // Nothing known, of no samples, is 0.
    let round = |value: f64| match value.is_finite() {
        true => format!("{value:.5e}").parse().unwrap_or(value),
        false => 0.0,
    };
    for value in [&mut row.median_us, &mut row.low_us, &mut row.high_us, &mut row.noise] {
        *value = round(*value);
    }
    let figures = [
        (&mut row.copy_gb_s, &mut row.read_gb_s),
        (&mut row.drift, &mut row.nmse),
        (&mut row.warm_us, &mut row.overlapped_us),
        (&mut row.tok_s, &mut row.tok_s_sd),
        (&mut row.b_us, &mut row.ratio),
        (&mut row.ratio_low, &mut row.ratio_high),
    ];
    for (one, other) in figures {
        (*one, *other) = (one.map(round), other.map(round));
    }
    row
}

/// A row with the median of samples and the interval that holds it in 95 % of cases.
fn timed(run: &Row, kind: Kind, samples: &[f64]) -> Row {
    let all = stats::summarise(samples);
    let noise = match samples.len() {
        // Few samples have no ranks that enclose the median: the error of a normal median.
        n if n < FEWEST_RANKED => {
            let (mean, sd) = stats::mean_sd(samples);
            Z95 * std::f64::consts::FRAC_PI_2.sqrt() * sd / mean / (n as f64).sqrt()
        }
        _ => all.noise,
    };
    Row {
        kind,
        n: samples.len(),
        median_us: all.median,
        low_us: all.median * (1.0 - noise),
        high_us: all.median * (1.0 + noise),
        noise,
        ..run.clone()
    }
}

/// Steps of a decode, each slower than the one before, since attention grows with the position: the
/// noise is estimated from differences of neighbours.
fn stepped(run: &Row, kind: Kind, samples: &[f64]) -> Row {
    let row = timed(run, kind, samples);
    let apart: Vec<f64> = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    // 1.4826 makes a standard deviation of a median of distances, of two samples √2 of one's.
    let sd = 1.4826 * paired::median(&apart) / 2f64.sqrt();
    let error = std::f64::consts::FRAC_PI_2.sqrt() * sd / (samples.len() as f64).sqrt();
    let noise = Z95 * error / row.median_us;
    let (low_us, high_us) = (row.median_us * (1.0 - noise), row.median_us * (1.0 + noise));
    Row { noise, low_us, high_us, ..row }
}

fn flags(flags: &[Flag]) -> String {
    flags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn case(run: &Row, environment: &Environment, case: &BenchCase) -> Row {
    let row = timed(run, Kind::Bench, &case.cold.samples_us);
    let (us, noise) = (row.median_us, case.cold.noise);
    // What says how a kernel runs is no doubt about its time.
    let is_how = |flag: &&Flag| [Flag::WallClock, Flag::RuntimeChecksOn].contains(flag);
    let clock = if case.clock == Clock::Gpu { "GPU clock" } else { "wall clock" };
    let mut how = format!("{clock}, run-time checks {}", environment.runtime_checks);
    for flag in case.flags.iter().filter(is_how) {
        how.push_str(&format!(", {flag}"));
    }
    if case.seed_a_sample {
        how.push_str(", a seed each sample");
    }
    let mut doubts: Vec<Flag> = case.flags.iter().filter(|f| !is_how(f)).copied().collect();
    add_new(&mut doubts, (!case.cold.settled).then_some(Flag::NotSettled));
    Row {
        noise,
        low_us: us * (1.0 - noise),
        high_us: us * (1.0 + noise),
        subject: case.kernel.clone(),
        variant: case.variant.clone(),
        shape: case.shape.clone(),
        source: case.source.clone(),
        how,
        warm_us: Some(case.warm.median_us),
        overlapped_us: case.overlapped.as_ref().map(|timing| timing.median_us),
        bytes: Some(case.bytes),
        flops: Some(case.flops),
        nmse: Some(case.nmse),
        nmse_bound: Some(case.nmse_bound),
        flags: flags(&doubts),
        ..row
    }
}

/// A case without a result. Its text begins with `KERNEL/VARIANT SHAPE`.
fn failed(run: &Row, text: &str) -> Row {
    let (subject, rest) = text.split_once('/').unwrap_or(("", text));
    let (variant, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let end = rest.find([' ', ':']).unwrap_or(rest.len());
    Row {
        kind: Kind::Failed,
        subject: subject.into(),
        variant: variant.into(),
        shape: rest[..end].into(),
        flags: rest[end..].trim_start_matches([' ', ':']).replace("; ", ", "),
        ..run.clone()
    }
}

fn ab(run: &Row, ab: &Ab) -> Row {
    let times: Vec<f64> = ab.samples.iter().flat_map(|block| block.a).collect();
    let source =
        |side: &Option<AbSide>| side.as_ref().map(|side| side.source.clone()).unwrap_or_default();
    let sides = || [&ab.a_side, &ab.b_side].into_iter().flatten();
    let verified = ab.verified.map(|v| (v.worst_nmse, v.limit));
    let judged = sides().map(|side| (side.nmse, side.nmse_bound));
    let nmse = verified.or(judged.reduce(|x, y| if x.0 > y.0 { x } else { y }));
    Row {
        subject: ab.kernel.clone(),
        variant: ab.a.clone(),
        shape: ab.shape.clone(),
        source: format!("{} {}", source(&ab.a_side), source(&ab.b_side)).trim().to_owned(),
        median_us: ab.found.a_us,
        nmse: nmse.map(|(nmse, _)| nmse),
        nmse_bound: nmse.map(|(_, bound)| bound),
        flags: flags(&ab.flags),
        b: ab.b.clone(),
        b_us: Some(ab.found.b_us),
        ratio: Some(ab.found.ratio.median),
        ratio_low: Some(ab.found.ratio.low),
        ratio_high: Some(ab.found.ratio.high),
        verdict: ab.found.verdict.to_string(),
        ..timed(run, Kind::Ab, &times)
    }
}

/// Hash of the code of a whole decode: the commit, which has the host's part, and every kernel that
/// was selected. Empty of a tree with changes.
fn source(run: &Row, selected: &[Selected], persistent_grid: &Option<String>) -> String {
    let Some(commit) = run.commit.as_ref().filter(|_| run.dirty == Some(false)) else {
        return String::new();
    };
    let chosen = selected.iter().map(|s| format!("\n{} {} {}", s.op, s.kernel, s.source));
    let text = chosen.fold(format!("{commit} {persistent_grid:?}"), |text, line| text + &line);
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, mix))
}

/// The unprofiled step, and each operation summed over the layers of a step.
fn profile(run: &Row, environment: &Environment, profile: &Profile) -> Vec<Row> {
    let source = source(run, &profile.selected, &None);
    let checks = &environment.runtime_checks;
    let of = format!("KV {} after {} tokens", profile.kv, profile.prompt_tokens);
    let every = profile.unprofiled.steps_per_submit.max(1);
    let (verified, bound) = profile.verified.map(|v| (v.worst_nmse, v.limit)).unzip();
    let named = |name: &str, us: &[f64]| Row {
        subject: profile.identity.clone(),
        shape: format!("{of}: {name}"),
        source: source.clone(),
        nmse: verified,
        nmse_bound: bound,
        ..stepped(run, Kind::Profile, us)
    };
    // Steps of one submission share its time: one sample, however many they are.
    let time = |steps: &[f64]| 1e3 * steps.iter().sum::<f64>() / steps.len() as f64;
    let us: Vec<f64> = profile.unprofiled.step_ms.chunks(every).map(time).collect();
    let mut rows = vec![Row {
        tok_s: Some(profile.unprofiled.decode_tok_s),
        how: format!("run-time checks {checks}, {every} steps a submission, {} of them", us.len()),
        ..named("unprofiled step", &us)
    }];
    let positions: Vec<usize> = profile.steps.iter().map(|step| step.position).collect();
    let ends = [positions.first(), positions.last()].map(|at| at.copied().unwrap_or_default());
    let mut names: Vec<&str> = Vec::new();
    add_new(&mut names, profile.ops.iter().map(|op| op.op.as_str()));
    for name in names {
        let members: Vec<_> =
            profile.ops.iter().enumerate().filter(|(_, op)| op.op == name).collect();
        let mut kernels = Vec::new();
        add_new(
            &mut kernels,
            members.iter().map(|(_, op)| format!("{}/{}", op.kernel, op.variant)),
        );
        let sum = |us: &[f64]| members.iter().filter_map(|(at, _)| us.get(*at)).sum();
        let us: Vec<f64> = profile.steps.iter().map(|step| sum(&step.us)).collect();
        rows.push(Row {
            variant: kernels.join(", "),
            how: format!("run-time checks {checks}, positions {} to {}", ends[0], ends[1]),
            bytes: profile.by_op.iter().find(|total| total.op == name).map(|total| total.bytes),
            ..named(name, &us)
        });
    }
    rows
}

/// Name of a model by its type and size, so that a renamed file is the same model; by its file name
/// if a record has two models that are alike.
fn told(model: &MeasuredModel, all: &[&MeasuredModel]) -> String {
    let identity = model.identity();
    let mut alike =
        all.iter().filter(|other| other.identity() == identity && other.file() != model.file());
    alike.next().map_or(identity, |_| model.file().to_owned())
}

/// A row with the facts about a decode.
fn decoded(row: Row, of: &Decoded) -> Row {
    let (nmse, nmse_bound) = of.verified.map(|v| (v.worst_nmse, v.limit)).unzip();
    Row {
        variant: of.persistent_grid.clone().unwrap_or_default(),
        source: source(&row, &of.selected, &of.persistent_grid),
        flags: flags(&of.watched.flags),
        nmse,
        nmse_bound,
        ..row
    }
}

fn test(run: &Row, how: &str, test: &GenerationTest, models: &[&MeasuredModel]) -> Row {
    let steps = match test.steps_per_submit {
        None => String::new(),
        Some(1) => ", 1 step a submission".into(),
        Some(n) => format!(", {n} steps a submission"),
    };
    let kv = match test.type_k == test.type_v {
        true => test.type_k.clone(),
        false => format!("{}/{}", test.type_k, test.type_v),
    };
    let us: Vec<f64> = test.samples_ns.iter().map(|ns| *ns as f64 / 1e3).collect();
    let row = Row {
        subject: told(&test.model, models),
        shape: format!("KV {kv}, activations {}: {}{steps}", test.activations, test.test),
        how: how.to_owned(),
        tok_s: Some(test.avg_ts),
        tok_s_sd: Some(test.stddev_ts),
        ..timed(run, Kind::Test, &us)
    };
    decoded(row, &test.of)
}

/// Time to the first token and all of the run, each at the faster setting, and the single steps.
fn suite(run: &Row, environment: &Environment, suite: &Suite) -> Vec<Row> {
    let models: Vec<_> = suite.models.iter().map(|model| &model.model).collect();
    let how = format!("run-time checks {}, prompts {}", environment.runtime_checks, suite.prompts);
    let mut rows = Vec::new();
    for model in &suite.models {
        for name in suite.config_names() {
            let Some(config) = model.configs.get(name) else { continue };
            let mut add = |part: &str, how: String, row: Row| {
                let (kv, activations) = (&model.kv, &model.activations);
                // The same name with other lengths is another case.
                let lengths = format!("{}/{}", config.prompt_tokens, config.generated_tokens);
                let shape = format!("KV {kv}, activations {activations}: {name} {lengths} {part}");
                let row = Row { subject: told(&model.model, &models), shape, how, ..row };
                rows.push(decoded(row, &config.of));
            };
            let fast = config.runs.iter().map(|run| run.steps_per_submit).max().unwrap_or(0);
            let runs = || config.runs.iter().filter(|run| run.steps_per_submit == fast);
            let how_fast = format!("{how}, {fast} steps a submission");
            let us: Vec<f64> = runs().map(|run| 1e3 * run.ttft_ms).collect();
            add("first token", how_fast.clone(), timed(run, Kind::Suite, &us));
            let us: Vec<f64> = runs().map(|run| 1e3 * (run.ttft_ms + run.decode_ms)).collect();
            let row = Row { tok_s: Some(config.e2e_tok_s), ..timed(run, Kind::Suite, &us) };
            add("end to end", how_fast, row);
            let runs: Vec<&[f64]> =
                config.runs.iter().map(|r| &r.step_ms[..]).filter(|ms| !ms.is_empty()).collect();
            let count = runs.iter().map(|ms| ms.len()).min().unwrap_or(0);
            let at = |step: usize| {
                paired::median(&runs.iter().map(|ms| 1e3 * ms[step]).collect::<Vec<_>>())
            };
            let us: Vec<f64> = (0..count).map(at).collect();
            let how = format!("{how}, 1 step a submission, {count} steps");
            add("step", how, stepped(run, Kind::Suite, &us));
        }
    }
    rows
}
