//! Records of several processes as one. A process cannot see where its own code and weights lie, and
//! the next one has them elsewhere: processes are the unit of evidence.

use super::add_new;
use super::record::{Ab, AbProcess, AbSide, Bench, BenchCase, Body, Record};

/// Fewest processes whose agreement is a claim.
pub const CLAIM: usize = 3;

/// Merges the records that several processes wrote of the same run: all samples, one process after
/// the other.
///
/// # Errors
/// What does not go together.
pub fn merged(records: Vec<Record>) -> Result<Record, String> {
    let count = records.len();
    let mut records = records.into_iter();
    let mut first = records.next().ok_or("no process wrote a record")?;
    match &mut first.body {
        Body::Bench(bench) => {
            bench.cases.iter_mut().flat_map(BenchCase::timings).for_each(|timing| {
                timing.processes = vec![timing.samples_us.len()];
            });
        }
        Body::Ab(ab) => ab.processes = vec![process(ab)],
        other => return Err(format!("a {} has no processes", other.what())),
    }
    for other in records {
        let drifts = [first.environment.canary_drift, other.environment.canary_drift];
        first.environment.canary_drift = drifts.into_iter().flatten().reduce(f64::max);
        match (&mut first.body, other.body) {
            (Body::Bench(bench), Body::Bench(other)) => add_bench(bench, other)?,
            (Body::Ab(ab), Body::Ab(other)) => add_ab(ab, other),
            _ => return Err("processes wrote records of different kinds".into()),
        }
    }
    first.environment.processes = Some(count);
    let copy = first.environment.copy_gb_s;
    first.body = match first.body {
        Body::Bench(Bench { cases, failed }) => {
            let cases = cases.into_iter().map(|case| case.settled(copy)).collect();
            Body::Bench(Bench { cases, failed })
        }
        Body::Ab(ab) => Body::Ab(ab.settled()?),
        other => other,
    };
    Ok(first)
}

fn add_bench(bench: &mut Bench, mut other: Bench) -> Result<(), String> {
    bench.failed.append(&mut other.failed);
    for case in &mut bench.cases {
        let key = case.key();
        let same = other.cases.iter_mut().find(|other| other.key() == key);
        let same = same.ok_or_else(|| format!("{key} is not in every process"))?;
        case.nmse = case.nmse.max(same.nmse);
        add_new(&mut case.flags, same.flags.iter().copied());
        for (into, timing) in case.timings().zip(same.timings()) {
            into.processes.push(timing.samples_us.len());
            into.samples_us.append(&mut timing.samples_us);
            into.settled &= timing.settled;
            into.throttled += timing.throttled;
        }
    }
    Ok(())
}

fn process(ab: &Ab) -> AbProcess {
    AbProcess { blocks: ab.samples.len(), ..AbProcess::default() }
}

fn add_ab(ab: &mut Ab, mut other: Ab) {
    ab.processes.push(process(&other));
    ab.samples.append(&mut other.samples);
    ab.throttled += other.throttled;
    add_new(&mut ab.flags, other.flags);
    let worse = |side: &mut Option<AbSide>, other: Option<AbSide>| {
        if let (Some(side), Some(other)) = (side, other) {
            side.nmse = side.nmse.max(other.nmse);
        }
    };
    worse(&mut ab.a_side, other.a_side);
    worse(&mut ab.b_side, other.b_side);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Timing, made_up::environment};

    #[test]
    fn timings_of_processes_keep_all_samples_and_their_spread_over_processes() {
        let record = |us: f64| {
            let timing = Timing { samples_us: vec![us; 5], settled: true, ..Timing::default() };
            let cases = vec![BenchCase { cold: timing, ..BenchCase::default() }];
            Record::new(environment(), Body::Bench(Bench { cases, failed: Vec::new() }))
        };
        let all = merged([10.0, 10.1, 10.2].map(record).to_vec()).unwrap();
        assert_eq!(all.environment.processes, Some(3));
        let Body::Bench(bench) = all.body else { panic!("no bench") };
        let cold = &bench.cases[0].cold;
        assert_eq!(cold.processes, [5; 3]);
        assert_eq!((cold.samples_us.len(), cold.median_us), (15, 10.1));
        // sd 0.1, t 4.303, three processes.
        assert!((cold.noise - 4.303 * 0.1 / 3f64.sqrt() / 10.1).abs() < 1e-6, "{}", cold.noise);
    }
}
