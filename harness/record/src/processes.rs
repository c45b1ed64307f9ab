//! Records of several processes as one. What a process cannot see of itself, where its code and its
//! weights happen to lie, differs from one to the next: they are the unit of evidence.

use super::paired::{Verdict, median};
use super::record::{Ab, AbProcess, AbSide, Bench, BenchCase, Body, Record, Timing};
use super::{Ratio, add_new, stats};

/// Fewest processes whose agreement is a claim.
pub const CLAIM: usize = 3;

/// One record of those that several processes wrote of the same run, or what does not go together.
pub fn merged(records: Vec<Record>) -> Result<Record, String> {
    let count = records.len();
    let mut records = records.into_iter();
    let mut first = records.next().ok_or("no process wrote a record")?;
    let rest: Vec<Record> = records.collect();
    first.environment.processes = Some(count);
    for other in &rest {
        let drift =
            first.environment.canary_drift.into_iter().chain(other.environment.canary_drift);
        first.environment.canary_drift = drift.reduce(f64::max);
    }
    match &mut first.body {
        Body::Bench(bench) => {
            let others = bodies(rest, |body| match body {
                Body::Bench(other) => Some(other),
                _ => None,
            })?;
            merge_benches(bench, &others)?;
        }
        Body::Ab(ab) => {
            let others = bodies(rest, |body| match body {
                Body::Ab(other) => Some(other),
                _ => None,
            })?;
            merge_abs(ab, others);
        }
        other => return Err(format!("a {} has no processes", other.what())),
    }
    Ok(first)
}

/// What the records hold, if all are of the kind.
fn bodies<T>(records: Vec<Record>, of_kind: fn(Body) -> Option<T>) -> Result<Vec<T>, String> {
    let bodies: Option<_> = records.into_iter().map(|record| of_kind(record.body)).collect();
    bodies.ok_or_else(|| "processes wrote records of different kinds".into())
}

fn merge_benches(into: &mut Bench, others: &[Bench]) -> Result<(), String> {
    for other in others {
        into.failed.extend(other.failed.iter().cloned());
    }
    for case in &mut into.cases {
        let key = case.key();
        let same_in = |other: &Bench| other.cases.iter().find(|c| c.key() == key).cloned();
        let same: Option<Vec<BenchCase>> = others.iter().map(same_in).collect();
        let same = same.ok_or_else(|| format!("{key} is not in every process"))?;
        let bytes_us = case.gb_s * case.cold.median_us;
        let flops_us = case.tflop_s.map(|t| t * case.cold.median_us);
        let fraction = case.fraction_of_copy / case.gb_s;
        merge_timings(&mut case.cold, same.iter().map(|c| &c.cold));
        merge_timings(&mut case.warm, same.iter().map(|c| &c.warm));
        if let Some(timing) = &mut case.overlapped {
            merge_timings(timing, same.iter().filter_map(|c| c.overlapped.as_ref()));
        }
        for (i, stage) in case.stages.iter_mut().enumerate() {
            let others = || same.iter().map(|c| c.stages.get(i).and_then(|s| s.cold.as_ref()));
            // What did not repeat in one process has no time.
            stage.cold = stage.cold.take().filter(|_| others().all(|other| other.is_some()));
            if let Some(timing) = &mut stage.cold {
                merge_timings(timing, others().flatten());
            }
        }
        case.gb_s = bytes_us / case.cold.median_us;
        case.fraction_of_copy = fraction * case.gb_s;
        case.tflop_s = flops_us.map(|t| t / case.cold.median_us);
        for other in same {
            case.nmse = case.nmse.into_iter().chain(other.nmse).reduce(f64::max);
            add_new(&mut case.flags, other.flags);
        }
    }
    Ok(())
}

fn merge_timings<'a>(into: &mut Timing, others: impl Iterator<Item = &'a Timing>) {
    into.processes_us = vec![into.median_us];
    for other in others {
        into.processes_us.push(other.median_us);
        into.samples_us.extend(&other.samples_us);
        into.settled &= other.settled;
        into.throttled += other.throttled;
    }
    let all = stats::summarise(&into.samples_us);
    (into.median_us, into.min_us, into.spread) = (all.median, all.min, all.spread);
    let over = stats::half_interval(&into.processes_us);
    into.noise = over.map_or(all.noise, |half| half / all.median);
}

fn merge_abs(into: &mut Ab, others: Vec<Ab>) {
    let all: Vec<Ab> = std::iter::once(into.clone()).chain(others).collect();
    into.processes = all.iter().map(AbProcess::from).collect();
    into.ratio = over_processes(all.iter().map(|ab| ab.ratio));
    into.control = over_processes(all.iter().map(|ab| ab.control));
    into.control_b = None;
    let middle = |of: fn(&Ab) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
    (into.a_us, into.b_us) = (middle(|ab| ab.a_us), middle(|ab| ab.b_us));
    into.indifference = all.iter().map(|ab| ab.indifference).fold(0.0, f64::max);
    into.blocks = all.iter().map(|ab| ab.blocks).sum();
    into.throttled = all.iter().map(|ab| ab.throttled).sum();
    add_new(&mut into.flags, all.iter().flat_map(|ab| ab.flags.clone()));
    into.samples = all.iter().flat_map(|ab| ab.samples.clone()).collect();
    let agreed = all.windows(2).all(|pair| pair[0].verdict == pair[1].verdict);
    if !agreed {
        into.verdict = Verdict::Inconclusive.into();
    }
    type Side = fn(&Ab) -> Option<&AbSide>;
    let sides: [(_, Side); 2] =
        [(&mut into.a_side, |ab| ab.a_side.as_ref()), (&mut into.b_side, |ab| ab.b_side.as_ref())];
    for (side, of) in sides {
        let Some(side) = side else { continue };
        for other in all.iter().filter_map(of) {
            side.nmse = side.nmse.max(other.nmse);
        }
    }
}

/// The median of the processes' ratios, with the 95 % interval of their logarithms' mean around it.
/// Unknown where one process knows nothing.
pub(super) fn over_processes(ratios: impl Iterator<Item = Ratio>) -> Ratio {
    let logs: Option<Vec<f64>> =
        ratios.map(|ratio| (ratio != Ratio::UNKNOWN).then(|| ratio.median.ln())).collect();
    let Some((logs, half)) = logs.and_then(|logs| stats::half_interval(&logs).map(|h| (logs, h)))
    else {
        return Ratio::UNKNOWN;
    };
    let middle = median(&logs);
    Ratio::exp(middle, (middle - half, middle + half))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn timings_of_processes_keep_all_samples_and_their_spread_over_processes() {
        let timing = |us: f64| Timing {
            median_us: us,
            min_us: us,
            spread: 0.0,
            noise: 0.0001,
            settled: true,
            dispatches: 10,
            samples_us: vec![us; 5],
            ..Timing::default()
        };
        let mut first = timing(10.0);
        merge_timings(&mut first, [&timing(10.1), &timing(10.2)].into_iter());
        assert_eq!(first.processes_us, [10.0, 10.1, 10.2]);
        assert_eq!((first.samples_us.len(), first.median_us), (15, 10.1));
        // sd 0.1, t 4.303, three processes.
        assert!((first.noise - 4.303 * 0.1 / 3f64.sqrt() / 10.1).abs() < 1e-6, "{}", first.noise);
    }

    #[test]
    fn ratios_of_processes_have_the_interval_of_their_mean() {
        let of = |log: f64| Ratio::exp(log, (log - 0.1, log + 0.1));
        let ratio = over_processes([0.01, 0.02, 0.03].map(of).into_iter());
        assert!((ratio.median - 0.02f64.exp()).abs() < 1e-12);
        assert!((ratio.half_width() - 4.303 * 0.01 / 3f64.sqrt()).abs() < 1e-9);
        // One that knows nothing is not one in which both are equal.
        assert_eq!(over_processes([of(0.05), Ratio::UNKNOWN].into_iter()), Ratio::UNKNOWN);
    }
}
