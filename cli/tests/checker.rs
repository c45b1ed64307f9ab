//! The checker itself: sabotaged kernels must fail, each in its own way.

use std::sync::Arc;

use lathe_harness::execute::Execute;
use lathe_harness::gpu::{GUARD_BYTES, Pipelines, Policy};
use lathe_harness::judge::check::{Case, Verdict, check_plan};
use lathe_harness::plan::Plan;
use lathe_kernels::{kernel, reflection, source};

use crate::cheats::{Faults, Sabotage, planted};
use crate::common;

pub(crate) const SEED: u64 = 7;

/// Checks a case, `kernel/variant PROBLEM`, after changes to its source and its plan. Returns
/// `None` where there is no adapter that can run it.
fn checked(
    case: &str,
    seed: u64,
    edit: impl FnOnce(&str) -> String,
    change: impl FnOnce(&mut Plan),
) -> Option<Verdict> {
    let gpu = common::gpu()?;
    let _turn = common::turn();
    let (place, problem) = case.split_once(' ').unwrap();
    let (name, variant) = place.split_once('/').unwrap();
    if reflection(name, variant).unwrap().needs_subgroup && gpu.caps.subgroup.is_none() {
        return None;
    }
    let kernel = kernel(name).unwrap();
    let text = edit(source(name, variant).unwrap().text);
    let problem = common::problem(kernel, problem);
    let (variant, shape) = (kernel.variant(variant).unwrap(), &problem.shape);
    let mut plan =
        Plan::with_text(kernel, variant, shape, &gpu.caps, &text, "sabotaged.wgsl").unwrap();
    change(&mut plan);
    Some(check_plan(&gpu, &Pipelines::default(), plan, &problem, seed).unwrap())
}

fn fails_with(verdict: Option<Verdict>, words: &str) {
    match verdict {
        Some(Verdict::Failed { reason, .. }) => assert!(reason.contains(words), "{reason}"),
        Some(other) => panic!("the checker accepted it: {other:?}"),
        None => {}
    }
}

/// A case with `from` replaced by `to`, which must occur, fails with these words; without words it
/// passes.
fn sabotaged(case: &str, from: &str, to: &str, words: &str) {
    sabotaged_at(SEED, case, from, to, words);
}

fn sabotaged_at(seed: u64, case: &str, from: &str, to: &str, words: &str) {
    eprintln!("{case}: {to}");
    let edit = |text: &str| {
        assert!(text.contains(from), "{from:?} does not occur in {case}");
        text.replace(from, to)
    };
    let verdict = checked(case, seed, edit, |_| {});
    if words.is_empty() {
        assert!(matches!(verdict, None | Some(Verdict::Passed { .. })), "{case}: {verdict:?}");
    } else {
        fails_with(verdict, words);
    }
}

#[test]
fn sabotage_fails_in_its_own_way() {
    let Faults { sabotage, .. } = planted();
    assert!(sabotage.len() >= 11);
    for Sabotage { case, from, to, words, seed } in &sabotage {
        sabotaged_at(*seed, case, from, to, words);
    }
    // The second of two dispatches never runs: the output keeps its poison.
    let case = "attention_decode/naive N_KV=9,KV_SIZE=16";
    let verdict = checked(case, SEED, str::to_owned, |plan| drop(plan.stages.pop()));
    fails_with(verdict, "never written");
    let verdict =
        checked("glu/naive N=200", SEED, str::to_owned, |plan| plan.stages[0].groups[0] -= 1);
    fails_with(verdict, "y[128] was never written");
}

/// Rounded activations have the bounds of their bits: fewer, or a digit that is off, are outside.
#[test]
fn coarser_rounding_of_activations_fails() {
    let largest = "const LARGEST: f32 = 32639.0;";
    for shape in ["ROWS=5,K=300", "ROWS=37,K=1152", "ROWS=100,K=64", "ROWS=9,K=6912"] {
        let case = format!("gemv_q/soa_dp4a16 {shape}");
        sabotaged(&case, largest, largest, "");
        // Twelve bits in the place of sixteen, and eight.
        sabotaged(&case, largest, "const LARGEST: f32 = 2047.0;", "y");
        sabotaged(&case, largest, "const LARGEST: f32 = 127.0;", "y");
    }
    let of_16 = "gemv_q/soa_dp4a16 ROWS=37,K=1152";
    sabotaged(of_16, "low ^= vec2<u32>(0x80808080u);", "", "y");
    let of_24 = "gemv_q/soa_dp4a24 ROWS=37,K=1152";
    let largest = "const LARGEST: f32 = 4161400.0;";
    sabotaged(of_24, largest, "const LARGEST: f32 = 8000.0;", "y");
    let sign = "tops = (tops & vec2<u32>(0x7f7f7f7fu))";
    sabotaged(of_24, sign, &sign.replace("7f7fu", "7f7eu"), "y");
    // A division that errs by the two and a half ULP that devices may err by changes nothing.
    for ulps in ["2u", "0xfffffffeu"] {
        let off = format!("bitcast<f32>(bitcast<u32>(LARGEST / most) + {ulps}), most > 1e-30");
        let case = "gemv_q/soa_dp4a24 ROWS=100,K=1152";
        sabotaged(case, "LARGEST / most, most > 1e-30", &off, "");
    }
    // Integers know no NaN: one among the activations must not vanish when they are rounded.
    let load = "a = half_eight(first, 2u * at);";
    let poisoned = format!("{load} if (at == 3u) {{ a.y = bitcast<f32>(0x7fc00000u + 0u * at); }}");
    for variant in ["soa_dp4a16", "soa_dp4a24"] {
        sabotaged(&format!("gemv_q/{variant} ROWS=7,K=300"), load, &poisoned, "NaN");
    }
}

#[test]
fn a_touched_guard_word_fails() {
    // Drivers may drop writes outside a binding, so the guards are touched from the host.
    let Some(gpu) = common::gpu() else { return };
    let _turn = common::turn();
    let kernel = kernel("residual_add").unwrap();
    let problem = common::problem(kernel, "N=96");
    let plan = Plan::of(kernel, &kernel.variants[0], &problem.shape, &gpu.caps).unwrap();
    let case = Case::new(&gpu, plan, &problem, SEED).unwrap();
    for (offset, byte) in
        [(0, "byte -256"), (GUARD_BYTES - 4, "byte -4"), (GUARD_BYTES + 384, "byte 384")]
    {
        let mut executor = case.prepare(&gpu, &Pipelines::default(), Policy::Guarded).unwrap();
        executor.run(&[lathe_harness::plan::recording::Part::Steps(1)]).unwrap();
        assert!(matches!(case.judge(&executor, Policy::Guarded).unwrap(), Verdict::Passed { .. }));
        let written = case.recording.ops[0].tensor("x");
        gpu.queue.write_buffer(&executor.block(written).buffer, offset, &[0; 4]);
        let verdict = case.judge(&executor, Policy::Guarded).unwrap();
        fails_with(Some(verdict), byte);
    }
}

#[test]
fn a_pipeline_the_device_refuses_is_a_failure_not_a_panic() {
    let Some(gpu) = common::gpu() else { return };
    let _turn = common::turn();
    let kernel = kernel("residual_add").unwrap();
    let problem = kernel.default_problem();
    let mut plan = Plan::of(kernel, &kernel.variants[0], &problem.shape, &gpu.caps).unwrap();
    // The most that naga takes, sixteen times what a device allows.
    let code = Arc::make_mut(&mut plan.stages[0].code);
    code.constants.insert("WG".into(), 16_384.0);
    let verdict = check_plan(&gpu, &Pipelines::default(), plan, &problem, SEED).unwrap();
    fails_with(Some(verdict), "refused residual_add/naive");
    gpu.check_faults().unwrap();
}
