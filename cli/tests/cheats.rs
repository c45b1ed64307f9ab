//! Kernels that cheat, each caught by the command that has to see it; the same kernel without the
//! cheat passes. Cheats that one invocation alone gives away are in `checker`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use lathe_harness::Error;
use lathe_harness::gpu::Pipelines;
use lathe_harness::judge::check::{Verdict, check};
use lathe_harness::measure::ab::{self, AbOptions};
use lathe_harness::measure::{BenchOptions, Request, Session};
use lathe_harness::plan::target::Target;

use crate::common::{self, Folder};

/// Commands, as library calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Command {
    Check,
    Bench,
    Ab,
}

const GEMV: &str = "gemv ROWS=128,K=320";
const ATTENTION: &str = "attention_decode Q_PER_KV=2,KV_HEADS=2,HEAD_DIM=64,KV_SIZE=128,N_KV=128";

/// A built-in kernel, changed so that it cheats: its name, the commands that have to see it, kernel
/// and shape, replacements in the text of the variant `naive`, each text of which stands there once,
/// and words of the complaint.
type Cheat = (
    &'static str,
    &'static [Command],
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const CHEATS: &[Cheat] = &[
    (
        "skips the last columns of each row",
        &[Command::Check],
        GEMV,
        &[("c < row_chunks(); c++", "c < row_chunks() - row_chunks() / 32u; c++")],
        "y: ",
    ),
    (
        "writes a constant",
        &[Command::Check],
        GEMV,
        &[("store_y(y_at(vector, row), sum,", "store_y(y_at(vector, row), 0.25 + 0.0 * sum,")],
        "y: ",
    ),
    (
        "sums in the precision of f16",
        &[Command::Check],
        GEMV,
        &[(
            "sum += dot_chunk(weights[base + c], load_vector_chunk(vector, c));",
            "sum += dot_chunk(weights[base + c], load_vector_chunk(vector, c));
             sum = bitcast<f32>(bitcast<u32>(sum) & 0xffffe000u);",
        )],
        "y: ",
    ),
    (
        // No score of normal queries and keys overflows.
        "takes no maximum off the scores: right for typical inputs alone",
        &[Command::Check],
        ATTENTION,
        &[
            ("var most = scores[head * KV_SIZE];", ""),
            ("for (var t = 1u; t < n; t++) { most = max(most, scores[head * KV_SIZE + t]); }", ""),
            ("exp(scores[head * KV_SIZE + t] - most)", "exp(scores[head * KV_SIZE + t])"),
        ],
        "when it ran again with other inputs",
    ),
    (
        "keeps an output that is written",
        &[Command::Check, Command::Bench],
        GEMV,
        &[(
            "let base = row * row_chunks();",
            "let base = row * row_chunks();
             let found = bitcast<u32>(y[y_at(0u, row)]);
             if ((found & 0x7fc00000u) != 0x7fc00000u) { return; }",
        )],
        "y: ",
    ),
    (
        "computes scores once, and trusts scratch memory from then on",
        &[Command::Check, Command::Bench],
        ATTENTION,
        &[(
            "    store_score(group_index(workgroup, groups) * WG + lid);",
            "let i = group_index(workgroup, groups) * WG + lid;
             let is_there = i < arrayLength(&scores);
             if (is_there && (bitcast<u32>(scores[i]) & 0x7fc00000u) != 0x7fc00000u) { return; }
             store_score(i);",
        )],
        "y: ",
    ),
    (
        "is right for the shape that is timed",
        &[Command::Bench, Command::Ab],
        GEMV,
        &[("c < row_chunks(); c++", "c < 40u; c++")],
        "is wrong for another shape",
    ),
    (
        "takes the result of the other side for its own",
        &[Command::Ab],
        "glu N=2048",
        &[(
            "if (first >= ROWS * N) { return; }",
            "if (first >= ROWS * N) { return; }
             let found = y[select(first, first / 2u, ACT_FORMAT == F16)];
             if ((found & 0x7fc00000u) != 0x7fc00000u) { return; }",
        )],
        "wrong",
    ),
];

/// A complaint of a command about a file in the place of `naive`.
fn complaint(session: &mut Session, command: Command, case: &str, file: &str) -> Option<String> {
    let gpu = session.gpu.clone();
    let (kernel, shape) = case.split_once(' ').unwrap();
    let kernel = lathe_kernels::kernel(kernel).unwrap();
    let subject = Target::side(kernel, &format!("naive={file}")).unwrap();
    let problem = common::problem(kernel, shape);
    let failed = |error: Error| match error {
        Error::CheckFailed(reason) => reason,
        other => panic!("{other}"),
    };
    match command {
        Command::Check => {
            let case = check(&gpu, &Pipelines::default(), &subject, &problem, 7).unwrap();
            match case.verdict {
                Verdict::Failed { reason, .. } => Some(reason),
                Verdict::Passed { .. } => None,
                other => panic!("{other:?}"),
            }
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
            let sides = [Target::side(kernel, "naive").unwrap(), subject];
            ab::subjects(&gpu, &sides, &problem, &bench, &options).err().map(failed)
        }
    }
}

#[test]
fn every_cheat_is_caught_and_honest_kernels_pass() {
    let Some(gpu) = common::own_gpu() else { return };
    let session = &mut Session::new(&gpu).unwrap();
    let folder = Folder::new();
    for (name, by, case, edits, words) in CHEATS {
        let kernel = case.split(' ').next().unwrap();
        let honest = lathe_kernels::source(kernel, "naive").unwrap().text.to_owned();
        let mut cheat = honest.clone();
        for (from, to) in *edits {
            assert_eq!(cheat.matches(from).count(), 1, "{name}: {from}");
            cheat = cheat.replace(from, to);
        }
        for command in *by {
            let file = folder.write("cheat.wgsl", &cheat);
            match complaint(session, *command, case, &file) {
                Some(reason) => assert!(reason.contains(words), "{name}, {command:?}: {reason}"),
                None => panic!("{command:?} accepts a kernel that {name}"),
            }
            let file = folder.write("honest.wgsl", &honest);
            assert_eq!(complaint(session, *command, case, &file), None, "{command:?}: {kernel}");
        }
    }
}
