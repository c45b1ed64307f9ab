//! Kernels that cheat, each caught by the command that has to see it; the same kernel without the
//! cheat passes. Faults that one invocation alone gives away are in `checker`.

use std::time::Duration;

use lathe_harness::Error;
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::check::{Stress, Verdict, check};
use lathe_harness::measure::ab::{self, AbOptions};
use lathe_harness::measure::{BenchOptions, Request, Session};
use lathe_harness::plan::target::Target;
use serde::Deserialize;

use crate::common::{self, Folder};

/// The planted faults of `faults.toml`.
#[derive(Deserialize)]
pub(crate) struct Faults {
    pub(crate) sabotage: Vec<Sabotage>,
    cheat: Vec<Cheat>,
}

/// A change to the text of a variant, `from` to `to`, and words of the checker's refusal; without
/// words it has to pass.
#[derive(Deserialize)]
pub(crate) struct Sabotage {
    /// `KERNEL/VARIANT PROBLEM`.
    pub(crate) case: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) words: String,
    /// Seed of the inputs, whose remainder by eight is the kind of stress inputs.
    #[serde(default = "usual_seed")]
    pub(crate) seed: u64,
}

pub(crate) fn planted() -> Faults {
    toml::from_str(include_str!("faults.toml")).unwrap()
}

fn usual_seed() -> u64 {
    crate::checker::SEED
}

/// Commands, as library calls.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Command {
    Check,
    Bench,
    Ab,
}

/// A built-in kernel, changed so that it cheats.
#[derive(Deserialize)]
struct Cheat {
    name: String,
    /// Commands that have to see it.
    by: Vec<Command>,
    /// Kernel and shape, or `KERNEL/VARIANT` and shape; otherwise the variant is `naive`.
    case: String,
    /// Seed of the inputs that `check` draws.
    #[serde(default = "usual_seed")]
    seed: u64,
    /// Further seeds of the same kind of stress inputs, of which one has to show the fault.
    #[serde(default)]
    more_seeds: u64,
    edits: Vec<(String, String)>,
    words: String,
}

/// Kernel, variant and shape of a case.
fn parts(case: &str) -> (&str, &str, &str) {
    let (place, shape) = case.split_once(' ').unwrap();
    let (kernel, variant) = place.split_once('/').unwrap_or((place, "naive"));
    (kernel, variant, shape)
}

/// A complaint of a command about a file in the place of a variant.
fn complaint(session: &mut Session, command: Command, cheat: &Cheat, file: &str) -> Option<String> {
    let gpu = session.gpu.clone();
    let (kernel, variant, shape) = parts(&cheat.case);
    let kernel = lathe_kernels::kernel(kernel).unwrap();
    let subject = Target::side(kernel, &format!("{variant}={file}")).unwrap();
    let problem = common::problem(kernel, shape);
    let failed = |error: Error| match error {
        Error::CheckFailed(reason) => reason,
        other => panic!("{other}"),
    };
    match command {
        Command::Check => {
            let pipelines = Pipelines::default();
            let of_seed = |i: u64| {
                let seed = cheat.seed + i * Stress::TURNS.len() as u64;
                match check(&gpu, &pipelines, &subject, &problem, seed).unwrap().verdict {
                    Verdict::Failed { reason, .. } => Some(reason),
                    Verdict::Passed { .. } => None,
                    other => panic!("{other:?}"),
                }
            };
            (0..=cheat.more_seeds).find_map(of_seed)
        }
        Command::Bench => {
            let targets = [Target { kernel, subjects: vec![subject] }];
            let request =
                Request { targets: &targets, shape: Some(shape), first: false, selected: None };
            let planned = match session.plan(&request) {
                Ok((planned, unavailable)) => {
                    assert!(unavailable.is_empty(), "{unavailable:?}");
                    planned
                }
                Err(e) => return Some(failed(e)),
            };
            let (bench, _) = session.measure_all(planned, &mut |_, _, _| Ok(())).unwrap();
            assert_eq!(bench.cases.len() + bench.failed.len(), 1);
            bench.failed.into_iter().next()
        }
        Command::Ab => {
            let options =
                AbOptions { time_out: Duration::from_millis(200), ..AbOptions::new(true) };
            let bench = BenchOptions::of(&gpu);
            let sides = [Target::side(kernel, variant).unwrap(), subject];
            ab::subjects(&gpu, &sides, &problem, &bench, &options).err().map(failed)
        }
    }
}

#[test]
fn every_cheat_is_caught_and_honest_kernels_pass() {
    let Some(gpu) = common::own_gpu() else { return };
    let session = &mut Session::new(&gpu).unwrap();
    let folder = Folder::new();
    let Faults { cheat, .. } = planted();
    assert!(cheat.len() >= 8);
    for planted in &cheat {
        let Cheat { name, by, case, edits, words, .. } = planted;
        let (kernel, variant, _) = parts(case);
        let honest = lathe_kernels::source(kernel, variant).unwrap().text.to_owned();
        let mut cheat = honest.clone();
        for (from, to) in edits {
            assert_eq!(cheat.matches(from).count(), 1, "{name}: {from}");
            cheat = cheat.replace(from, to);
        }
        for command in by {
            let file = folder.write("cheat.wgsl", &cheat);
            match complaint(session, *command, planted, &file) {
                Some(reason) => assert!(reason.contains(words), "{name}, {command:?}: {reason}"),
                None => panic!("{command:?} accepts a kernel that {name}"),
            }
            let file = folder.write("honest.wgsl", &honest);
            assert_eq!(complaint(session, *command, planted, &file), None, "{command:?}: {kernel}");
        }
    }
}
