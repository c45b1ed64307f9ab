//! Every kernel and variant against its reference: the fixed cases, then random shapes at the
//! edges of tiles. A failure prints the command that repeats it.

use lathe_harness::execute::Execute;
use lathe_harness::gpu::{Checks, Gpu, Pipelines, Policy};
use lathe_harness::judge::check::{Case, Request, Verdict, check, check_plan, sweep};
use lathe_harness::plan::Plan;
use lathe_harness::plan::recording::Part;
use lathe_harness::plan::select::{Hints, select};
use lathe_harness::plan::target::Target;
use lathe_kernels::{Capabilities, Constants, CooperativeMatrix, MatrixScalar, Problem, kernels};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::common;

const SEED: u64 = 42;

/// The sweep of `lathe check`, on two devices and more: every variant on all fixed cases of its
/// kernel.
#[test]
fn every_variant_matches_its_reference_on_every_fixed_case() {
    let Some(gpu) = common::own_gpu() else { return };
    let targets = Target::parse(None).unwrap();
    let request =
        Request { targets: &targets, shape: None, random: 0, seed: SEED, fail_fast: false };
    let another = || Gpu::open(None, Checks::Files);
    let report = sweep(&gpu, &request, &another, &|_, _| {}).unwrap();
    let failed = report.cases.iter().filter_map(|case| match &case.verdict {
        Verdict::Failed { reason, .. } => {
            Some(format!("{reason}\n  repeat: {}", case.reproducer(gpu.checks)))
        }
        _ => None,
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let matrices = &gpu.caps.cooperative_matrices;
    for target in &targets {
        for subject in &target.subjects {
            let (name, variant) = (target.kernel.name, subject.variant.name);
            let own = report.cases.iter().filter(|c| c.kernel == name && c.variant == variant);
            let passed = own.filter(|c| matches!(c.verdict, Verdict::Passed { .. })).count();
            let needs = lathe_kernels::reflection(name, variant).unwrap();
            let expected = (!needs.needs_subgroup || gpu.caps.subgroup.is_some())
                && needs.needs_cooperative_matrix.iter().all(|m| matrices.contains(m));
            assert!(!expected || passed > 0, "{name}/{variant} ran no fixed case");
        }
    }
    eprintln!("{} cases passed, {} unavailable", report.passed, report.unavailable);
}

/// All variants of a kernel on a random problem. A failure shrinks to a small one.
fn matches_reference(name: &str) {
    let Some(gpu) = common::own_gpu() else { return };
    let target = Target::one(name).unwrap();
    let kernel = target.kernel;
    // Problems come from a vector of draws, so that shrinking the draws shrinks the problem.
    let drawn = kernel.params.len() + kernel.state.len();
    let draws = proptest::collection::vec(any::<u32>(), 2 * drawn);
    let config = Config { cases: 1, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&(draws, any::<u64>()), |(draws, seed)| {
        let mut draws = draws.into_iter();
        let problem = kernel.draw(&mut |n| draws.next().unwrap_or(0) % n.max(1));
        for subject in &target.subjects {
            let case = check(&gpu, &Pipelines::default(), subject, &problem, seed)
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            if let Verdict::Failed { reason, .. } = &case.verdict {
                let repeat = case.reproducer(gpu.checks);
                return Err(TestCaseError::fail(format!("{reason}\n  repeat: {repeat}")));
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|e| panic!("{e}"));
}

macro_rules! matches_reference {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            matches_reference(stringify!($name));
        })*
    };
}

lathe_kernels::for_each_operation!(matches_reference);

/// Plenty of everything but matrices.
fn large() -> Capabilities {
    Capabilities {
        binding_bytes: 2 << 30,
        subgroup: Some((32, 32)),
        f16: true,
        workgroup_memory: 48 << 10,
        invocations: 1024,
        ..Capabilities::minimal()
    }
}

/// `naive` is the first rung: 30 and more times slower. Decoding must select another variant for a
/// benchmarked shape, on an adapter with the least capabilities as on one with plenty.
#[test]
fn no_benchmarked_shape_falls_to_naive() {
    let (least, large) =
        (Capabilities { binding_bytes: 2 << 30, ..Capabilities::minimal() }, large());
    let software =
        Capabilities { subgroup: Some((8, 8)), workgroup_memory: 32 << 10, ..large.clone() };
    for kernel in kernels().iter().filter(|k| k.variants.len() > 1) {
        for problem in kernel.bench() {
            for caps in [&least, &software, &large] {
                let chosen = select(kernel, &problem.shape, caps, &Hints::new(), None).unwrap();
                assert!(
                    chosen.plan.variant != "naive",
                    "{} {}: {} with {caps:?}",
                    kernel.name,
                    kernel.show(&problem),
                    chosen.why
                );
            }
        }
    }
}

/// A rung that no benchmark reaches is kept by belief.
#[test]
fn every_variant_is_benchmarked_somewhere() {
    let (inputs, sums) = (MatrixScalar::F16, MatrixScalar::F32);
    let matrix = |m| CooperativeMatrix { m, n: m, k: m, inputs, sums };
    let large = Capabilities { cooperative_matrices: vec![matrix(16), matrix(8)], ..large() };
    let mut never = Vec::new();
    for kernel in kernels() {
        let problems = kernel.bench();
        for variant in kernel.variants {
            if !problems.iter().any(|p| Plan::of(kernel, variant, &p.shape, &large).is_ok()) {
                never.push(format!("{}/{}", kernel.name, variant.name));
            }
        }
    }
    assert!(never.is_empty(), "no benchmarked shape for {never:?}");
}

/// Limits that no adapter at hand has: much parallelism over little memory, and a number of
/// invocations that is no power of two, which a tree of sums would lose a part of.
#[test]
fn workgroups_fit_unusual_limits() {
    let caps =
        Capabilities { invocations: 1024, subgroup: Some((32, 32)), ..Capabilities::minimal() };
    let gemv_q = lathe_kernels::kernel("gemv_q").unwrap();
    let shape = common::problem(gemv_q, "ROWS=1000,K=4480,WEIGHT=q4_k").shape;
    let plan = Plan::of(gemv_q, gemv_q.variant("soa_dp4a24").unwrap(), &shape, &caps).unwrap();
    assert!(plan.code.constants["WG"] < 1024.0, "{:?}", plan.code.constants);

    let caps = Capabilities { invocations: 192, ..caps };
    let fused = lathe_kernels::kernel("matmul_rmsnorm_fused").unwrap();
    let shape = common::problem(fused, "ROWS=300,K=1000").shape;
    let plan = Plan::of(fused, fused.variant("two_pass").unwrap(), &shape, &caps).unwrap();
    assert_eq!(plan.code.constants["WG"], 128.0);
}

/// The norms of two_pass_subgroup run in the workgroup that its product asks for.
#[test]
fn norms_are_never_left_to_a_few_invocations() {
    let fused = lathe_kernels::kernel("matmul_rmsnorm_fused").unwrap();
    let variant = fused.variant("two_pass_subgroup").unwrap();
    for size in [4, 8, 32, 64] {
        let caps = Capabilities { subgroup: Some((size, size)), ..Capabilities::minimal() };
        for k in [8, 64, 512, 1152, 6912] {
            let shape = common::problem(fused, &format!("ROWS=2048,K={k}")).shape;
            let plan = Plan::of(fused, variant, &shape, &caps).unwrap();
            let wide = plan.code.constants["LANES"] * plan.code.constants["TEAMS"];
            assert!((128.0..=256.0).contains(&wide), "{size} {k}: {:?}", plan.code.constants);
        }
    }
}

/// Variants with constants of their own, which no adapter at hand would give them: `constants.txt`
/// has the workgroups of the first dispatch, and results match.
#[test]
fn variants_with_constants_of_their_own_match_their_reference() {
    let Some(gpu) = common::own_gpu().filter(|gpu| gpu.caps.subgroup.is_some()) else {
        eprintln!("UNAVAILABLE, not tested: no subgroups");
        return;
    };
    let (pipelines, mut cases) = (Pipelines::default(), 0);
    for line in include_str!("constants.txt").lines() {
        let [place, text, constants, groups] = line.split(" | ").collect::<Vec<_>>()[..] else {
            assert!(line.is_empty() || line.starts_with('#'), "{line}");
            continue;
        };
        let (name, variant) = place.split_once('/').unwrap();
        let kernel = lathe_kernels::kernel(name).unwrap();
        // `*` is the beginning of a kernel's own name for a variant.
        let is_meant = |name: &str| match variant.strip_prefix('*') {
            Some(end) => name.ends_with(end),
            None => name == variant,
        };
        let variant = kernel.variants.iter().find(|v| is_meant(v.name)).unwrap();
        let problem = common::problem(kernel, text);
        let constants = constants.split(',').map(|part| part.split_once('=').unwrap());
        let constants: Constants =
            constants.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect();
        let plan = Plan::tuned(kernel, variant, &problem.shape, &gpu.caps, &constants).unwrap();
        let (least, most) = groups.split_once(' ').unwrap();
        let (least, most): (u32, u32) = (least.parse().unwrap(), most.parse().unwrap());
        let ran = plan.stages[0].groups[0];
        assert!((least..=most).contains(&ran), "{line}: {ran}");
        let verdict = check_plan(&gpu, &pipelines, plan, &problem, SEED).unwrap();
        assert!(matches!(verdict, Verdict::Passed { .. }), "{line}: {verdict:?}");
        cases += 1;
    }
    assert_eq!(cases, 41);
}

/// A benchmark repeats a step without end: the position stays within the tokens there are.
#[test]
fn the_position_never_leaves_the_tokens() {
    let Some(gpu) = common::own_gpu() else { return };
    let kernel = lathe_kernels::kernel("argmax").unwrap();
    let problem = common::problem(kernel, "N=100,N_KV=2,PROMPT_LEN=1");
    let naive = kernel.variant("naive").unwrap();
    let plan = Plan::of(kernel, naive, &problem.shape, &gpu.caps).unwrap();
    let case = Case::new(&gpu, plan, &problem, SEED).unwrap();
    let mut executor = case.prepare(&gpu, &Pipelines::default(), Policy::Guarded).unwrap();
    let op = &case.recording.ops[0];
    let state = op.tensor("state");
    let tokens = executor.block(op.tensor("tokens")).binding().size.unwrap().get() / 4;
    executor.run(&[Part::Steps(tokens as usize + 5)]).unwrap();
    assert_eq!(u64::from(executor.read_words(state).unwrap()[0]), tokens - 1);
}

/// Slots that no token has filled may hold anything: a NaN under a weight of zero is still one.
#[test]
fn attention_does_not_mix_what_no_token_filled() {
    let Some(gpu) = common::own_gpu() else { return };
    // One round of every team, then several: of these the last has dead slots.
    let sizes = [(300, 41, 2, 64), (1024, 600, 8, 128)];
    let kernels = ["attention_decode", "attention_append"].map(lathe_kernels::kernel);
    let all = kernels.into_iter().flatten().flat_map(|kernel| {
        let variants = kernel.variants.iter();
        variants.flat_map(move |variant| sizes.map(|size| (kernel, variant, size)))
    });
    for (kernel, variant, size) in all {
        let (name, (capacity, seen, kv_heads, head_dim)) = (kernel.name, size);
        // What the kernel itself appends nobody has filled before.
        let filled = seen - usize::from(name == "attention_append");
        let text = format!(
            "Q_PER_KV=2,KV_HEADS={kv_heads},HEAD_DIM={head_dim},KV_SIZE={capacity},KV_FORMAT=f32,N_KV={seen}"
        );
        let problem = common::problem(kernel, &text);
        let Ok(plan) = Plan::of(kernel, variant, &problem.shape, &gpu.caps) else { continue };
        let case = Case::new(&gpu, plan, &problem, SEED).unwrap();
        let pipelines = Pipelines::default();
        let mixed = |fill: Option<f32>| {
            let mut executor = case.prepare(&gpu, &pipelines, Policy::Plain).unwrap();
            let op = &case.recording.ops[0];
            for cache in ["k_cache", "v_cache"] {
                for head in 0..kv_heads {
                    let Some(fill) = fill else { continue };
                    let first = 4 * head_dim * (head * capacity + filled);
                    let empty = vec![fill; head_dim * (capacity - filled)];
                    let bytes = bytemuck::cast_slice(&empty);
                    executor.block(op.tensor(cache)).write(&gpu, first as u64, bytes);
                }
            }
            executor.run(&[Part::Steps(1)]).unwrap();
            executor.read_f32(op.tensor("y")).unwrap()
        };
        let (expected, got) = (mixed(None), mixed(Some(f32::NAN)));
        assert!(expected.iter().all(|v| v.is_finite()), "{name}/{}", variant.name);
        assert_eq!(got, expected, "{name}/{}", variant.name);
    }
}

/// Subgroups of 4 and of 16, which software Vulkan has by the width of its vectors: every kernel
/// that uses subgroups on its smallest case, in turns. A run of the suite with
/// `LP_NATIVE_VECTOR_WIDTH` has all cases.
#[test]
fn subgroups_of_4_and_of_16_agree_too() {
    const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";
    let Some(gpu) = common::own_gpu() else { return };
    if !gpu.adapter.name.contains("llvmpipe") || std::env::var_os(WIDTH).is_some() {
        eprintln!("UNAVAILABLE, not tested: only Mesa's software Vulkan has subgroups of any size");
        return;
    }
    let mut checked = 0;
    for (at, target) in Target::parse(None).unwrap().iter().enumerate() {
        let (lanes, bits) = [(4, "128"), (16, "512")][at % 2];
        let caps = Capabilities { subgroup: Some((lanes, lanes)), ..gpu.caps.clone() };
        let (kernel, name) = (target.kernel, target.kernel.name);
        let uses = |variant: &str| {
            let needs = lathe_kernels::reflection(name, variant).unwrap();
            needs.needs_subgroup && needs.needs_cooperative_matrix.is_empty()
        };
        let mut subjects = target.subjects.iter().filter(|subject| uses(subject.variant.name));
        let runs = |problem: &Problem| subjects.clone().any(|s| s.plan(problem, &caps).is_ok());
        let bytes = |problem: &Problem| kernel.cost(problem).bytes;
        let all = kernel.cases().into_iter().filter(runs);
        let Some(problem) = all.min_by(|a, b| bytes(a).total_cmp(&bytes(b))) else {
            assert!(subjects.next().is_none(), "{name}: no case for subgroups of {lanes}");
            continue;
        };
        let shape = kernel.show(&problem);
        let mut check = common::command(&["check", name, "--shape", &shape, "--json"]);
        let document = common::document(&check.env(WIDTH, bits).output().unwrap());
        assert_eq!(document["failed"], 0, "{name} {shape}: {document}");
        assert_eq!(document["adapter"]["subgroup_size"], serde_json::json!([lanes, lanes]));
        let passed =
            document["cases"].as_array().unwrap().iter().filter(|case| {
                case["status"] == "passed" && uses(case["variant"].as_str().unwrap())
            });
        assert!(passed.count() > 0, "{name} {shape}: {document}");
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}
