//! Whole models: logits against transformers' (see goldens/), executors against each other, and
//! the state that must not survive a run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use lathe_harness::decode::graph::{Chunks, Selected};
use lathe_harness::decode::session::{self, Prompts, Verifier};
use lathe_harness::decode::{
    DecodeGraph, GraphOptions, RunOptions, Sampling, Weights, graph, kv_cache, timed,
};
use lathe_harness::error::Error;
use lathe_harness::execute::{CpuExecutor, Execute};
use lathe_harness::gpu::Gpu;
use lathe_harness::judge::diff;
use lathe_harness::model::ModelFile;
use lathe_harness::model::synth::{SynthArch, SynthSpec, write_synth};
use lathe_harness::plan::Plan;
use lathe_harness::plan::recording::{Part, TensorId, TensorInit};
use lathe_harness::plan::select::Hints;
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::phases::Grid;
use lathe_kernels::{Capabilities, FloatFormat, Format, KvFormat, StateWord};

use crate::common::{self, GOLDENS, Golden, LONGER, on_gpu};

impl Golden {
    /// Prompt and the golden's own greedy tokens, all fed.
    fn forced(&self) -> RunOptions {
        RunOptions {
            prompt: self.prompt.clone(),
            forced: self.greedy.clone(),
            prompts: Prompts::TokenByToken,
            generate: self.greedy.len(),
            steps_per_submit: Some(1),
            stop_at: Vec::new(),
            seed: 0,
            ..RunOptions::default()
        }
    }

    fn free(&self, steps_per_submit: usize) -> RunOptions {
        RunOptions {
            forced: Vec::new(),
            prompts: Prompts::Chunks,
            steps_per_submit: Some(steps_per_submit),
            ..self.forced()
        }
    }
}

fn build(file: &Arc<ModelFile>, caps: &Capabilities, context: usize, kv: KvFormat) -> DecodeGraph {
    build_with(file, caps, context, kv, None)
}

fn build_with(
    file: &Arc<ModelFile>,
    caps: &Capabilities,
    context: usize,
    kv: KvFormat,
    runs: Option<Grid>,
) -> DecodeGraph {
    let config = file.config().unwrap();
    let weights = Weights::load(file, &config).unwrap();
    let chunks = Chunks { most: 32, ..Chunks::with_cache(kv) };
    let options = GraphOptions { kv, chunks, runs, ..GraphOptions::of_step(context) };
    graph::build(&file.path, &config, &weights, caps, &options).unwrap()
}

fn nmse(expected: &[f32], got: &[f32]) -> f64 {
    assert_eq!(expected.len(), got.len());
    let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    lathe_reference::nmse(wide(expected), wide(got))
}

#[test]
fn cpu_executor_has_the_logits_of_transformers() {
    for name in GOLDENS {
        let golden = Golden::load(name);
        for (kv, limit) in [(KvFormat::F32, 1e-10), (KvFormat::F16, 1e-5)] {
            let graph = build(&golden.file, &Capabilities::minimal(), 64, kv);
            let mut executor = CpuExecutor::new(Arc::clone(&graph.recording));
            let (greedy, logits) = common::observed(&graph, &mut executor, &golden.forced());
            let error = nmse(&golden.logits, &logits);
            eprintln!("{name} CPU {kv:?}: NMSE {error:.2e}");
            assert!(error <= limit, "{name} {kv:?}: {error:e}");
            assert_eq!(greedy, golden.greedy, "{name} {kv:?}");
        }
    }
}

#[test]
fn gpu_executor_has_the_logits_of_transformers() {
    let Some(gpu) = common::own_gpu() else { return };
    let all = GOLDENS.iter().flat_map(|name| {
        // Heads and attention are two kernels in the first context, one in the second.
        [(KvFormat::F32, 1e-8), (KvFormat::F16, 1e-5)]
            .into_iter()
            .flat_map(move |(kv, limit)| [64, LONGER].map(|context| (name, kv, limit, context)))
    });
    for (name, kv, limit, context) in all {
        let golden = Golden::load(name);
        let graph = build(&golden.file, &gpu.caps, context, kv);
        let mut executor = on_gpu(&gpu, &graph);
        let (greedy, logits) = common::observed(&graph, &mut executor, &golden.forced());
        let error = nmse(&golden.logits, &logits);
        eprintln!("{name} GPU {kv:?} {context}: NMSE {error:.2e}");
        assert!(error <= limit, "{name} {kv:?} {context}: {error:e}");
        assert_eq!(greedy, golden.greedy, "{name} {kv:?} {context}");
    }
}

/// Rounding keys and values to 8 bits moves the logits, by as much on a device as in the reference.
#[test]
fn caches_of_q8_0_are_near_transformers_and_the_same_on_a_device() {
    let gpu = common::own_gpu();
    let names = ["gemma3-tiny-f16", "llama-tiny-q4km", "qwen3-tiny-q80"];
    let on_device = gpu.as_ref().map_or_else(Vec::new, |_| names.to_vec());
    for name in names {
        let golden = Golden::load(name);
        let kv = KvFormat::Q8_0;
        let graph = build(&golden.file, &Capabilities::minimal(), 64, kv);
        let mut executor = CpuExecutor::new(Arc::clone(&graph.recording));
        let (_, on_cpu) = common::observed(&graph, &mut executor, &golden.forced());
        let error = nmse(&golden.logits, &on_cpu);
        eprintln!("{name} CPU {kv:?}: NMSE {error:.2e}");
        assert!(error <= 2e-3 && error > 1e-9, "{name}: {error:e}");
        let Some(gpu) = gpu.as_ref().filter(|_| on_device.contains(&name)) else { continue };
        for context in [64, LONGER] {
            let graph = build(&golden.file, &gpu.caps, context, kv);
            let mut executor = on_gpu(gpu, &graph);
            let (_, on_gpu) = common::observed(&graph, &mut executor, &golden.forced());
            let error = nmse(&on_cpu, &on_gpu);
            eprintln!("{name} GPU {context}: NMSE {error:.2e}");
            assert!(error <= 1e-5, "{name} {context}: {error:e}");
            // The prompt in chunks, its activations in f16.
            let prompt = golden.prompt.len();
            let options = RunOptions { generate: 1, ..golden.free(1) };
            let (_, last) = common::observed(&graph, &mut executor, &options);
            let vocab = last.len();
            let error = nmse(&on_cpu[(prompt - 1) * vocab..][..vocab], &last);
            eprintln!("{name} GPU {context}, chunks: NMSE {error:.2e}");
            assert!(error <= session::logits_limit(&graph), "{name} {context}: {error:e}");
        }
    }
}

/// The norm of a branch, the sum and the next norm are made by the matrix that reads them, or by a
/// dispatch before it. Which of its two tensors has the stream depends on the mixture.
#[test]
fn gemmas_norms_are_made_by_their_readers_in_any_mixture_of_ways() {
    let golden = Golden::load("gemma3-tiny-f16");
    let config = golden.file.config().unwrap();
    let weights = Weights::load(&golden.file, &config).unwrap();
    let gpu = common::own_gpu();
    let adapters = gpu.iter().map(|gpu| gpu.caps.clone()).chain([Capabilities::minimal()]);
    let all = adapters.flat_map(|caps| {
        [
            (None, [6, 7, 1]),
            (Some("residual_rms_norm"), [0, 0, 14]),
            (Some("fused_ffn"), [6, 0, 8]),
            (Some("gemv"), [0, 7, 7]),
            (Some("rms_norm"), [6, 7, 1]),
        ]
        .map(|ways| (caps.clone(), ways))
    });
    let on_device = gpu.as_ref().map_or_else(Vec::new, |_| (0..10).collect());
    for (at, (caps, (hint, [qkv, ffn, apart]))) in all.enumerate() {
        let hints = hint.map(|kernel| (kernel.to_owned(), "naive".into())).into_iter().collect();
        let options = GraphOptions { kv: KvFormat::F32, hints, ..GraphOptions::of_step(64) };
        let graph = graph::build(&golden.file.path, &config, &weights, &caps, &options).unwrap();
        let recording = &graph.recording;
        let count = |name| recording.ops.iter().filter(|op| op.kernel().name == name).count();
        let kernels = ["residual_norm_gemv", "residual_norm_ffn", "residual_rms_norm"];
        assert_eq!(kernels.map(count), [qkv, ffn, apart], "{hint:?}");
        // The first layer's norm is its matrix's too, which every hint for either takes apart.
        let is_first_apart = matches!(hint, Some("gemv" | "rms_norm"));
        assert_eq!(count("rms_norm"), usize::from(is_first_apart), "{hint:?}");
        if hint.is_none() {
            assert!(recording.dispatches() <= 48, "{} dispatches", recording.dispatches());
        }
        let mut executors: Vec<(Box<dyn Execute>, f64)> =
            vec![(Box::new(CpuExecutor::new(Arc::clone(recording))), 1e-10)];
        if let Some(gpu) = gpu.as_ref().filter(|_| on_device.contains(&at)) {
            executors.push((Box::new(on_gpu(gpu, &graph)), 1e-8));
        }
        for (mut executor, limit) in executors {
            let (greedy, logits) = common::observed(&graph, executor.as_mut(), &golden.forced());
            let error = nmse(&golden.logits, &logits);
            eprintln!("{hint:?}: {} dispatches, NMSE {error:.2e}", recording.dispatches());
            assert!(error <= limit, "{hint:?}: {error:e}");
            assert_eq!(greedy, golden.greedy, "{hint:?}");
        }
    }
}

/// The last norm is the head's where its rows round their input in integers, which norm it on the
/// way. A hint for the layers' matrices that cannot hold for the head takes it apart.
#[test]
fn a_quantised_head_norms_its_input() {
    let golden = Golden::load("llama-tiny-q4km");
    let config = golden.file.config().unwrap();
    let weights = Weights::load(&golden.file, &config).unwrap();
    let subgroups = lathe_harness::plan::backend_text::generous();
    for (caps, hint, norms) in [
        (subgroups.clone(), None, 0),
        (subgroups.clone(), Some(("rms_norm", "naive")), 1),
        (subgroups.clone(), Some(("gemv_q", "naive")), 1),
        (subgroups, Some(("norm_gemv", "naive")), 0),
    ] {
        let hints = hint.map(|(k, v)| (k.to_owned(), v.into())).into_iter().collect();
        let options = GraphOptions { kv: KvFormat::F32, hints, ..GraphOptions::of_step(64) };
        let graph = graph::build(&golden.file.path, &config, &weights, &caps, &options).unwrap();
        let ops = &graph.recording.ops;
        let count = ops.iter().filter(|op| op.kernel().name == "rms_norm").count();
        assert_eq!(count, norms, "{hint:?}");
        let mut executor = CpuExecutor::new(Arc::clone(&graph.recording));
        let (_, logits) = common::observed(&graph, &mut executor, &golden.forced());
        let error = nmse(&golden.logits, &logits);
        assert!(error <= 1e-10, "{hint:?}: {error:e}");
    }
}

/// Where rows are many, only the variant that stages its normed input pays.
#[test]
fn a_large_head_norms_its_input_with_one_variant_alone() {
    let kernel = lathe_kernels::kernel("norm_gemv").unwrap();
    let fusion = kernel.fuses.as_ref().unwrap();
    for problem in kernel.cases() {
        let is_large = problem.shape.value("ROWS") >= 16_384.0;
        for variant in kernel.variants {
            let expected = match variant.name {
                "planes_dp4a24" => true,
                "naive" => false,
                _ => !is_large,
            };
            let pays = (fusion.pays_with)(&problem.shape, variant.name);
            assert_eq!(pays, expected, "{} {:?}", variant.name, problem.shape);
        }
    }
}

/// A hint that holds for the layers' matrices and cannot for the head is none for the head.
#[test]
fn a_hint_for_dense_layers_leaves_a_quantised_head_alone() {
    let golden = Golden::load("llama-tiny-f16");
    let config = golden.file.config().unwrap();
    let mut weights = Weights::load(&golden.file, &config).unwrap();
    let bytes = config.vocab * Format::Q8_0.row_bytes(config.hidden);
    let zeros: Arc<[u8]> = vec![0; bytes].into();
    weights.head =
        Some(WeightRows::new(Format::Q8_0, config.hidden, Bytes::Owned(zeros, 0..bytes)));
    let caps = lathe_harness::plan::backend_text::generous();
    for (hint, norms) in [(None, 0), (Some("vec2"), 1)] {
        let hints = hint.map(|v: &str| ("norm_gemv".to_owned(), v.into())).into_iter().collect();
        let options = GraphOptions { hints, ..GraphOptions::of_step(64) };
        let graph = graph::build(&golden.file.path, &config, &weights, &caps, &options).unwrap();
        let is_norm = |selected: &&Selected| selected.op == "output_norm";
        let found: Vec<_> = graph.selected.iter().filter(is_norm).collect();
        assert_eq!(found.len(), norms, "{hint:?}");
        let why = found.first().map_or("", |norm| norm.why.as_str());
        assert!(norms == 0 || why.contains("not fused as norm_gemv: hint"), "{why}");
    }
}

/// On one workgroup, which waits for nobody: what a phase computes, and what the next one sees.
#[test]
fn layers_that_are_one_dispatch_have_the_logits_of_transformers() {
    let Some(gpu) = common::own_gpu() else { return };
    // Heads and attention are two kernels in a short context, one in a longer. Each model and
    // context compiles its own texts, so each way of cutting layers into runs has one of them: two
    // layers of gemma3 take turns with two buffers of the stream.
    let all = [
        ("gemma3-tiny-f16", 64, u32::MAX),
        ("llama-tiny-f16", LONGER, u32::MAX),
        ("qwen3-tiny-bf16", LONGER, u32::MAX),
        ("gemma3-tiny-q4km", LONGER, u32::MAX),
        ("gemma3-tiny-q4km", 64, 2),
        ("llama-tiny-q4km", LONGER, u32::MAX),
        ("qwen3-tiny-q80", LONGER, 1),
    ];
    for (name, context, together) in all {
        let golden = Golden::load(name);
        let grid = Grid { groups: 1, invocations: 64, prefetch: 2, layers: together };
        let kv = KvFormat::F32;
        let graph = build_with(&golden.file, &gpu.caps, context, kv, Some(grid));
        let apart = build(&golden.file, &gpu.caps, context, kv);
        let recording = &graph.recording;
        eprintln!(
            "{name} {context}: runs of {:?} layers, {} dispatches instead of {}",
            recording.runs.iter().map(|run| run.layers).collect::<Vec<_>>(),
            recording.dispatches(),
            apart.recording.dispatches()
        );
        let layers = golden.file.config().unwrap().n_layers;
        let in_runs: Vec<_> = recording.runs.iter().map(|run| run.layers).collect();
        assert_eq!(in_runs.iter().sum::<usize>(), layers, "{name} {context}: {in_runs:?}");
        let most = in_runs.iter().copied().max().unwrap_or(0) as u32;
        assert!(most <= together && (most > 1) == (together > 1), "{name}: {in_runs:?}");
        assert!(recording.dispatches() < apart.recording.dispatches(), "{name} {context}");
        // Waits bring quantised weights; dense ones are loaded ahead of them by what reads
        // them.
        let is_quantised = name.contains("q4") || name.contains("q80");
        let prefetches = recording.runs.iter().any(|run| run.text.text.contains("run_prefetch_"));
        assert!(prefetches || !is_quantised, "{name} {context}");
        let mut executor = on_gpu(&gpu, &graph);
        // One operation of a run cannot be looked at alone.
        let error = diff::part(&mut executor, Part::Steps(1), 0).unwrap_err();
        assert!(error.to_string().contains("--runs off"), "{error}");
        assert!(executor.op_timer(Part::Steps(1)).is_err());
        let (greedy, logits) = common::observed(&graph, &mut executor, &golden.forced());
        let error = nmse(&golden.logits, &logits);
        eprintln!("{name} in runs, {context}: NMSE {error:.2e}");
        assert!(error <= 1e-8, "{name} {context}: {error:e}");
        assert_eq!(greedy, golden.greedy, "{name} {context}");
        // Several steps a submission, and after a prompt in chunks, of which runs are no part.
        let prompts = match name {
            "gemma3-tiny-q4km" => Prompts::Chunks,
            _ => Prompts::TokenByToken,
        };
        let options = RunOptions { prompts, ..golden.free(4) };
        let run = session::run(&graph, &mut executor, &options, &mut |_| {});
        assert_eq!(run.unwrap().generated, golden.greedy, "{name} {context}");
    }
}

/// A software adapter takes one workgroup after the other: the second would come when the first
/// has ended, which waits for it.
#[test]
fn workgroups_that_wait_in_vain_end_in_an_error() {
    let Some(gpu) = common::own_gpu() else { return };
    assert_eq!(
        gpu.waits(Grid { groups: 1, invocations: 32, prefetch: 0, layers: u32::MAX }, 5).unwrap(),
        None
    );
    if !gpu.adapter.software {
        return;
    }
    assert!(gpu.run_grid().unwrap().unwrap_err().contains("software"));
    let many = Grid { groups: 64, invocations: 32, prefetch: 0, layers: u32::MAX };
    let fault = gpu.waits(many, 5).unwrap().expect("they cannot all run at once");
    assert!(fault.contains("64 workgroups of 32"), "{fault}");

    let golden = Golden::load("llama-tiny-q4km");
    let grid = Grid { groups: 64, invocations: 64, prefetch: 0, layers: u32::MAX };
    let graph = build_with(&golden.file, &gpu.caps, 64, KvFormat::F32, Some(grid));
    assert!(!graph.recording.runs.is_empty());
    let mut executor = on_gpu(&gpu, &graph);
    for _ in 0..2 {
        let run = session::run(&graph, &mut executor, &golden.free(4), &mut |_| {});
        let error = run.expect_err("no workgroup saw what the others made");
        assert!(matches!(error, Error::Waits { .. }), "{error}");
        assert!(error.to_string().contains("--runs off"), "{error}");
    }
}

/// Prompts of lengths around the sizes of chunks and windows: every one ends in another row.
#[test]
fn prompts_in_chunks_have_the_logits_of_transformers() {
    let Some(gpu) = common::own_gpu() else { return };
    let all = GOLDENS.iter().flat_map(|name| {
        // Where a chunk holds all tokens, it ends nowhere.
        let caches = [(KvFormat::F32, 1e-8), (KvFormat::F16, 1e-5)];
        caches.into_iter().flat_map(move |(kv, limit)| [16, 64].map(|most| (name, kv, limit, most)))
    });
    for (name, kv, limit, most) in all {
        let golden = Golden::load(name);
        let tokens = [&golden.prompt[..], &golden.greedy].concat();
        let config = golden.file.config().unwrap();
        let weights = Weights::load(&golden.file, &config).unwrap();
        let vocab = config.vocab;
        let windows = (0..config.n_layers).filter_map(|i| config.layer_window(i));
        let edges: BTreeSet<usize> = windows.chain([16, 32, 48]).collect();
        let lengths: BTreeSet<usize> = edges
            .into_iter()
            .flat_map(|edge| [edge - 1, edge, edge + 1, edge + 3])
            .chain([2, 3, tokens.len() - 1])
            .filter(|n| (2..tokens.len()).contains(n))
            .collect();
        assert!(lengths.len() > 8, "{lengths:?}");
        let chunks = Chunks { most, ..Chunks::with_cache(kv) };
        let options = GraphOptions { kv, chunks, ..GraphOptions::of_step(LONGER) };
        let path = &golden.file.path;
        let graph = graph::build(path, &config, &weights, &gpu.caps, &options).unwrap();
        let mut executor = on_gpu(&gpu, &graph);
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for n in lengths {
            let options =
                RunOptions { prompt: tokens[..n].to_vec(), generate: 1, ..golden.free(1) };
            let (_, logits) = common::observed(&graph, &mut executor, &options);
            assert_eq!(logits.len(), vocab, "the last token's alone");
            expected.extend_from_slice(&golden.logits[(n - 1) * vocab..][..vocab]);
            got.extend(logits);
            let row = expected.len() - vocab;
            let error = nmse(&expected[row..], &got[row..]);
            assert!(error <= 4.0 * limit, "{name} {kv:?}, {n} tokens, {most}: {error:e}");
        }
        let error = nmse(&expected, &got);
        eprintln!("{name} chunks of {most} {kv:?}: NMSE {error:.2e}");
        assert!(error <= limit, "{name} {kv:?}, {most}: {error:e}");
        // What decode steps find after it.
        let run = session::run(&graph, &mut executor, &golden.free(4), &mut |_| {});
        assert_eq!(run.unwrap().generated, golden.greedy, "{name} {kv:?}, {most}");
    }
}

/// A prompt in several calls, each behind what the ones before left, and steps behind them.
#[test]
fn a_session_goes_on_where_it_stopped() {
    let golden = Golden::load("gemma3-tiny-f16");
    let graph = build(&golden.file, &Capabilities::minimal(), 100, KvFormat::F32);
    let mut cpu = CpuExecutor::new(Arc::clone(&graph.recording));
    let gpu = common::own_gpu();
    let mut executors: Vec<Box<dyn Execute>> = vec![Box::new(cpu_warm(&mut cpu, &graph, &golden))];
    if let Some(gpu) = &gpu {
        executors.push(Box::new(on_gpu(gpu, &graph)));
    }
    for executor in &mut executors {
        let executor = executor.as_mut();
        for prompts in [Prompts::Chunks, Prompts::TokenByToken] {
            timed::reset(&graph, executor, 0).unwrap();
            let (first, second) = golden.prompt.split_at(golden.prompt.len() / 3);
            for tokens in [first, second] {
                timed::feed(&graph, executor, tokens, prompts).unwrap();
            }
            let mut generated = Vec::new();
            let steps =
                timed::generate(&graph, executor, 9, 4, &mut |t| generated.push(t)).unwrap();
            assert_eq!(steps.len(), 9);
            let chosen = executor.read_words(graph.tokens).unwrap()[golden.prompt.len()];
            assert_eq!(chosen, golden.greedy[0], "{prompts:?}");
            assert_eq!(generated, golden.greedy[1..10], "{prompts:?}");
        }
        let too_many = vec![1; graph.context];
        let error = timed::feed(&graph, executor, &too_many, Prompts::Chunks).unwrap_err();
        assert!(error.to_string().contains("do not fit the context of 100"), "{error}");
        assert!(timed::feed(&graph, executor, &[], Prompts::Chunks).is_err());
        let beyond = [graph.vocab as u32];
        assert!(timed::feed(&graph, executor, &beyond, Prompts::Chunks).is_err());
    }
}

#[test]
fn every_variant_of_every_kernel_decodes_the_same() {
    let Some(gpu) = common::own_gpu() else { return };
    let greedy =
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repeat_penalty: 1.0, repeat_last_n: 0 };
    // Which kernels a step is made of depends on model, formats and context.
    let steps = [
        ("gemma3-tiny-f16", 64),
        ("gemma3-tiny-q4km", 64),
        ("llama-tiny-f16", 64),
        ("llama-tiny-q4km", 64),
        ("gemma3-tiny-f16", LONGER),
    ]
    .map(|(name, context)| {
        let golden = Golden::load(name);
        let selected = build(&golden.file, &gpu.caps, context, KvFormat::F32).selected;
        (golden, context, selected)
    });
    let mut all = Vec::new();
    for kernel in lathe_kernels::kernels() {
        let sampled = kernel.name == "sample";
        for variant in kernel.variants {
            let runs = |selected: &[Selected]| {
                let mut shapes = selected.iter().filter(|s| s.kernel == kernel.name).peekable();
                let used = shapes.peek().is_some();
                used && shapes.all(|s| {
                    let problem = kernel.parse_complete(&s.shape).unwrap();
                    variant.unsupported(&problem.shape, &gpu.caps).is_none()
                })
            };
            let step = steps.iter().find(|step| sampled || runs(&step.2));
            let Some((golden, context, _)) = step else { continue };
            let config = golden.file.config().unwrap();
            let weights = Weights::load(&golden.file, &config).unwrap();
            let hints = Hints::from([(kernel.name.to_owned(), variant.name.into())]);
            let options = GraphOptions {
                kv: KvFormat::F32,
                chunks: Chunks { most: 16, acts: FloatFormat::F32 },
                sampling: sampled.then_some(greedy),
                hints,
                ..GraphOptions::of_step(*context)
            };
            let built = graph::build(&golden.file.path, &config, &weights, &gpu.caps, &options);
            let graph = match built {
                Ok(graph) => graph,
                // Not on this adapter, or not of this model's formats.
                Err(e) => {
                    let refused = e.to_string().contains("cannot hold for");
                    assert!(refused, "{}/{}: {e}", kernel.name, variant.name);
                    continue;
                }
            };
            // A decode of this model does not use every kernel.
            let used = graph.selected.iter().filter(|s| s.kernel == kernel.name);
            if used.clone().count() == 0 {
                // No model of this kind has such an operation.
                continue;
            }
            assert!(
                used.into_iter().all(|s| s.variant == variant.name && s.why == "explicit hint")
            );
            all.push((kernel.name, variant, golden, graph));
        }
    }
    let decoded: BTreeSet<_> = all.iter().map(|(name, ..)| *name).collect();
    for name in ["sample", "norm_gemv", "fused_ffn", "attention_append", "attention_decode"]
        .into_iter()
        .chain(["residual_norm_gemv", "residual_norm_ffn"])
    {
        assert!(decoded.contains(name), "{name} is not in {decoded:?}");
    }
    assert!(decoded.len() >= 12, "{decoded:?}");
    for (name, variant, golden, graph) in all {
        let mut executor = on_gpu(&gpu, &graph);
        let options = RunOptions { generate: 6, ..golden.free(3) };
        let run = session::run(&graph, &mut executor, &options, &mut |_| {}).unwrap();
        // Where activations are rounded, a close call may go the other way.
        if !variant.has_own_tolerance() {
            assert_eq!(run.generated, golden.greedy[..6], "{name}/{}", variant.name);
        }
    }
}

#[test]
fn tokens_do_not_depend_on_the_steps_in_a_submission() {
    let Some(gpu) = common::own_gpu() else { return };
    for name in GOLDENS {
        let golden = Golden::load(name);
        let graph = build(&golden.file, &gpu.caps, 64, KvFormat::F32);
        let mut executor = on_gpu(&gpu, &graph);
        for steps in [Some(1), Some(4), Some(7), Some(100), None] {
            let options = RunOptions { steps_per_submit: steps, ..golden.free(1) };
            let mut heard = Vec::new();
            let run =
                session::run(&graph, &mut executor, &options, &mut |t| heard.push(t)).unwrap();
            assert_eq!(run.generated, golden.greedy, "{name}, {steps:?} steps a submission");
            assert_eq!(heard, run.generated);
            match steps {
                Some(steps) => assert_eq!(run.submits, 23usize.div_ceil(steps)),
                // By time: how many is the device's affair.
                None => assert!((1..=23).contains(&run.submits), "{}", run.submits),
            }
            assert_eq!(run.decode_steps, 23);
        }
    }
}

/// A timed run that starts with the warm-up's cache or counter attends over too many slots. The
/// comparison that would show it is first shown to be able to.
#[test]
fn a_run_after_a_reset_is_a_first_run_and_without_one_is_not() {
    let golden = Golden::load("gemma3-tiny-f16");
    let graph = build(&golden.file, &Capabilities::minimal(), 200, KvFormat::F32);
    assert!(graph.caches.iter().any(|c| c.sliding), "the golden has sliding-window layers");
    assert!(graph.caches.iter().any(|c| !c.sliding), "and a global one");
    let mut cpu = CpuExecutor::new(Arc::clone(&graph.recording));
    let gpu = common::own_gpu();
    let mut executors: Vec<Box<dyn Execute>> = vec![Box::new(cpu_warm(&mut cpu, &graph, &golden))];
    if let Some(gpu) = &gpu {
        let mut executor = on_gpu(gpu, &graph);
        session::run(&graph, &mut executor, &golden.free(1), &mut |_| {}).unwrap();
        executors.push(Box::new(executor));
    }
    for executor in &mut executors {
        let seen =
            |e: &mut dyn Execute| e.read_words(graph.state).unwrap()[StateWord::Position as usize];
        assert_eq!(seen(executor.as_mut()), 63, "the warm-up left its count");
        // Not reset: the next prompt continues where the warm-up stopped.
        executor.write_words(graph.tokens, 63, &golden.prompt[..1]).unwrap();
        executor.run(&[Part::Steps(1)]).unwrap();
        let stale = executor.read_f32(graph.logits).unwrap();
        let first = &golden.logits[..graph.vocab];
        assert!(nmse(first, &stale) > 1e-3, "a stale cache must be visible");
        // Reset: no trace of it, neither in the counter nor in any cache.
        kv_cache::reset(executor.as_mut(), &graph.caches, graph.state, 1).unwrap();
        assert_eq!(seen(executor.as_mut()), 0);
        for cache in &graph.caches {
            for tensor in [cache.k, cache.v] {
                assert!(executor.read_f32(tensor).unwrap().iter().all(|v| *v == 0.0));
            }
        }
        let (greedy, logits) = common::observed(&graph, executor.as_mut(), &golden.forced());
        assert!(nmse(&golden.logits, &logits) <= 1e-8);
        assert_eq!(greedy, golden.greedy);
    }
}

fn cpu_warm(cpu: &mut CpuExecutor, graph: &DecodeGraph, golden: &Golden) -> CpuExecutor {
    session::run(graph, cpu, &golden.free(1), &mut |_| {}).unwrap();
    CpuExecutor { recording: Arc::clone(&cpu.recording), values: cpu.values.clone() }
}

#[test]
fn the_verifier_accepts_the_device_and_refuses_a_wrong_one() {
    let Some(gpu) = common::own_gpu() else { return };
    let golden = Golden::load("qwen3-tiny-bf16");
    let mut graph = build(&golden.file, &gpu.caps, 64, KvFormat::F32);
    let options = RunOptions { generate: 4, prompts: Prompts::TokenByToken, ..golden.free(1) };
    let verify = |graph: &DecodeGraph| {
        let mut device = on_gpu(&gpu, graph);
        let mut reference = CpuExecutor::new(Arc::clone(&graph.recording));
        let limit = session::logits_limit(graph);
        assert_eq!(limit, 1e-8, "all is stored in f32");
        let mut verifier = Verifier::new(graph, &mut reference, &options, limit, 64).unwrap();
        session::run_observed(graph, &mut device, &options, &mut |step| verifier.compare(step))
            .map(|_| verifier.compared)
    };
    assert_eq!(verify(&graph).unwrap(), 43);
    let silu = "return g / (1.0 + exp(min(-g, 80.0)))";
    sabotage(&mut graph, &gpu, "fused_ffn", silu, &silu.replace("1.0", "1.1"));
    match verify(&graph) {
        Err(Error::CheckFailed(reason)) => assert!(reason.contains("position 0"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn diff_names_the_first_operation_that_is_off() {
    let Some(gpu) = common::own_gpu() else { return };
    for name in GOLDENS {
        let golden = Golden::load(name);
        let mut graph = build(&golden.file, &gpu.caps, LONGER, KvFormat::F16);
        let begin = |graph: &DecodeGraph| {
            let mut executor = on_gpu(&gpu, graph);
            kv_cache::reset(&mut executor, &graph.caches, graph.state, 40).unwrap();
            executor.write_words(graph.tokens, 0, &golden.prompt).unwrap();
            // Matrices of two formats fill one vector, one after the other: poison in what the
            // second will write is no fault of the first.
            for (i, tensor) in graph.recording.tensors.iter().enumerate() {
                if matches!(tensor.content, TensorInit::Activation { .. }) {
                    executor.clear(TensorId(i)).unwrap();
                }
            }
            executor
        };
        let mut honest = begin(&graph);
        for position in 0..20 {
            assert!(
                diff::part(&mut honest, Part::Steps(1), position).unwrap().is_none(),
                "{name} {position}"
            );
        }
        sabotage(
            &mut graph,
            &gpu,
            "attention_append",
            "/ combine_maxima[lid].y",
            "/ (combine_maxima[lid].y + 0.01)",
        );
        let found = diff::part(&mut begin(&graph), Part::Steps(1), 0)
            .unwrap()
            .expect("the sabotage is found");
        // Short windows have another kernel, and layer 0 is spared.
        let mut ops = graph.recording.ops.iter().filter(|op| op.label.layer != Some(0));
        let first = ops.find(|op| op.kernel().name == "attention_append").unwrap();
        assert_eq!(found.label, first.label.to_string(), "{found:?}");
        assert_eq!(found.kernel, "attention_append");
    }
}

/// Replaces `from` in the source of a kernel from layer 1 on.
fn sabotage(graph: &mut DecodeGraph, gpu: &Gpu, kernel: &str, from: &str, to: &str) {
    let recording = Arc::make_mut(&mut graph.recording);
    for op in recording.ops.iter_mut().filter(|op| op.kernel().name == kernel) {
        if op.label.layer == Some(0) {
            continue;
        }
        let variant = op.kernel().variant(&op.plan.variant).unwrap();
        assert!(op.plan.text.contains(from), "{from:?} is not in {kernel}/{}", variant.name);
        let text = op.plan.text.replace(from, to);
        op.plan =
            Plan::with_text(op.kernel(), variant, &op.shape, &gpu.caps, &text, "sabotage").unwrap();
    }
}

#[test]
fn runs_that_cannot_be_are_refused() {
    let golden = Golden::load("llama-tiny-f16");
    let graph = build(&golden.file, &Capabilities::minimal(), 8, KvFormat::F32);
    let mut executor = CpuExecutor::new(Arc::clone(&graph.recording));
    let mut refuse = |options: RunOptions| {
        session::run(&graph, &mut executor, &options, &mut |_| {}).unwrap_err().to_string()
    };
    let base = RunOptions {
        prompt: vec![1, 2],
        generate: 1,
        steps_per_submit: Some(1),
        ..Default::default()
    };
    assert!(refuse(RunOptions { prompt: vec![], ..base.clone() }).contains("empty"));
    assert!(refuse(RunOptions { prompt: vec![320], ..base.clone() }).contains("vocabulary of 320"));
    assert!(refuse(RunOptions { generate: 9, ..base }).contains("context of 8"));
}

#[test]
fn hints_win_or_fail_loudly() {
    let golden = Golden::load("llama-tiny-f16");
    let config = golden.file.config().unwrap();
    let weights = Weights::load(&golden.file, &config).unwrap();
    let built = |kernel: &str, variant: &str| {
        let hints = Hints::from([(kernel.to_owned(), variant.into())]);
        let options = GraphOptions { kv: KvFormat::F32, hints, ..GraphOptions::of_step(8) };
        let caps = Capabilities::minimal();
        graph::build(Path::new("m.gguf"), &config, &weights, &caps, &options)
            .map_err(|e| e.to_string())
    };
    assert!(built("gemv", "naive").is_ok());
    // The adapter has no subgroups: the choice fails, it is not replaced.
    let error = built("gemv", "subgroup").unwrap_err();
    assert!(error.contains("gemv=subgroup") && error.contains("subgroup operations"), "{error}");
    assert!(built("gemv", "fastest").unwrap_err().contains("no such variant"));
    assert!(built("gemm", "naive").unwrap_err().contains("gemm"));
}

/// Whatever the kernel would prefer for a decode, a cache format or a size: a named variant runs.
#[test]
fn an_explicit_attention_variant_wins_for_every_cache_and_context() {
    let golden = Golden::load("gemma3-tiny-f16");
    let config = golden.file.config().unwrap();
    let weights = Weights::load(&golden.file, &config).unwrap();
    let caps = Capabilities {
        subgroup: Some((32, 32)),
        workgroup_memory: 48 << 10,
        invocations: 1024,
        ..Capabilities::minimal()
    };
    let kernels = ["attention_decode", "attention_append"].map(lathe_kernels::kernel);
    for kv in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        for context in [16, 512, 4096] {
            let selected = |hints: Hints| {
                let acts = FloatFormat::F16;
                let options = GraphOptions { kv, acts, hints, ..GraphOptions::of_step(context) };
                let path = &golden.file.path;
                let graph = graph::build(path, &config, &weights, &caps, &options).unwrap();
                graph.selected.into_iter().filter(|s| s.op == "attention").collect::<Vec<_>>()
            };
            for kernel in kernels.into_iter().flatten() {
                for variant in kernel.variants {
                    let hint = variant.name.into();
                    for s in selected(Hints::from([(kernel.name.to_owned(), hint)])) {
                        assert_eq!(
                            (s.kernel.as_str(), s.variant.as_str(), s.why.as_str()),
                            (kernel.name, variant.name, "explicit hint")
                        );
                    }
                }
            }
            assert!(selected(Hints::new()).iter().all(|s| s.why != "explicit hint"));
        }
    }
}

#[test]
fn synthetic_models_decode_alike_on_both_executors() {
    let Some(gpu) = common::own_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Gemma's window holds 32 tokens; the others have none, and no later step differs.
    let archs = [(SynthArch::Gemma3Mini, 38), (SynthArch::LlamaMini, 6), (SynthArch::Qwen3Mini, 6)];
    let formats = [
        (Format::F32, None),
        (Format::F16, Some(Format::Bf16)),
        (Format::Bf16, Some(Format::F32)),
        // With rows no multiple of 256 or of 32, five formats in one model.
        (Format::Q4K, Some(Format::Q6K)),
    ];
    let all = archs.into_iter().flat_map(|model| formats.map(|formats| (model, formats)));
    for ((arch, generate), (quant, embed_quant)) in all {
        let name = quant.name();
        let path = folder.path().join(format!("{arch}-{name}.gguf"));
        let spec = SynthSpec { arch, quant, embed_quant, seed: 3 };
        write_synth(&spec, &path, &mut |_, _| {}).unwrap();
        let file = Arc::new(ModelFile::open(&path).unwrap());
        let graph = build(&file, &gpu.caps, 48, KvFormat::F16);
        let options = RunOptions {
            prompt: vec![2, 5, 7],
            generate,
            steps_per_submit: Some(1),
            ..Default::default()
        };
        let mut device = on_gpu(&gpu, &graph);
        let mut reference = CpuExecutor::new(Arc::clone(&graph.recording));
        let limit = session::logits_limit(&graph);
        assert_eq!(limit, 1e-5, "the cache is f16");
        let mut verifier = Verifier::new(&graph, &mut reference, &options, limit, 40).unwrap();
        session::run_observed(&graph, &mut device, &options, &mut |s| verifier.compare(s))
            .unwrap_or_else(|e| panic!("{arch} {name}: {e}"));
        eprintln!("{arch} {name}: NMSE {:.1e}", verifier.worst);
    }
}
