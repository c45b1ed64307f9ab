//! Whole models: a matrix of goldens, caches and contexts, each row with the logits of
//! transformers (see goldens/) on every path; executors compared with each other; and the state
//! that must not survive a run.

use std::collections::BTreeSet;
use std::sync::Arc;

use lathe_harness::decode::graph::Selected;
use lathe_harness::decode::{
    Chunks, DecodeGraph, DecodeOptions, Decoder, Prompts, Run, Script, Verifier, logits_limit,
};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{Execute, GpuExecutor};
use lathe_harness::gpu::Gpu;
use lathe_harness::judge::diff;
use lathe_harness::model::synth::{SynthArch, SynthSpec};
use lathe_harness::plan::Plan;
use lathe_harness::plan::persistent::Persistent;
use lathe_harness::plan::recording::{Part, TensorId, TensorInit};
use lathe_harness::plan::select::{Hints, parse_hints};
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::{Capabilities, FloatFormat, Format, Grid, KvFormat, StateWord};

use crate::common::{self, Device, Golden, LONGER, nmse, observed, on_cpu, on_gpu};

/// Options with chunks of `most` tokens, in which no operation is hinted.
fn options(kv: KvFormat, context: usize, most: usize) -> DecodeOptions {
    let chunks = Some(Chunks { most, ..Chunks::with_cache(kv) });
    DecodeOptions { kv, chunks, ..DecodeOptions::of_step(context) }
}

fn hinted(kernel: &str, variant: &str) -> Hints {
    parse_hints(&[format!("{kernel}={variant}")]).unwrap()
}

fn run(graph: &DecodeGraph, executor: &mut dyn Execute, script: &Script) -> Result<Run> {
    Decoder::new(graph, executor).run(script, &mut |_| {})
}

/// Persistent kernels on one workgroup, which has no others to wait for: golden, context and most
/// layers of each. Two layers of gemma3 alternate between two buffers of the stream.
const IN_RUNS: [(&str, usize, u32); 9] = [
    ("gemma3-tiny-f16", 64, u32::MAX),
    ("llama-tiny-f16", LONGER, u32::MAX),
    ("qwen3-tiny-bf16", LONGER, u32::MAX),
    ("gemma3-tiny-q4km", LONGER, u32::MAX),
    ("gemma3-tiny-q4km", 64, 2),
    ("llama-tiny-q4km", LONGER, u32::MAX),
    ("qwen3-tiny-q80", LONGER, 1),
    ("qwen2-tiny", 64, u32::MAX),
    ("qwen2-tiny", LONGER, u32::MAX),
];

#[test]
fn gemma3_has_the_logits_of_transformers_on_every_path() {
    rows_of(["gemma3-tiny-f16", "gemma3-tiny-q4km"], [8, 3]);
}

#[test]
fn llama_has_the_logits_of_transformers_on_every_path() {
    rows_of(["llama-tiny-f16", "llama-tiny-q4km"], [5, 8]);
}

#[test]
fn qwen3_has_the_logits_of_transformers_on_every_path() {
    rows_of(["qwen3-tiny-bf16", "qwen3-tiny-q80"], [9, 2]);
}

#[test]
fn linear_rope_has_the_logits_of_transformers_on_every_path() {
    rows_of(["gemma3-tiny-linear", "llama-tiny-linear"], [3, 2]);
}

#[test]
fn yarn_has_the_logits_of_transformers_on_every_path() {
    rows_of(["qwen3-tiny-yarn", "llama-tiny-yarn"], [2, 3]);
}

#[test]
fn heads_of_any_width_have_the_logits_of_transformers_on_every_path() {
    rows_of(["mistral-tiny", "llama-tiny-narrow"], [2, 3]);
}

#[test]
fn windows_in_every_layer_have_the_logits_of_transformers_on_every_path() {
    rows_of(["mistral-tiny-window"], [3]);
}

#[test]
fn biases_have_the_logits_of_transformers_on_every_path() {
    rows_of(["qwen2-tiny"], [3]);
}

/// More sequences than one pass of any kernel takes, the last pass or tile full and not.
#[test]
fn many_sequences_choose_as_each_does_alone() {
    let Some(gpu) = common::own_gpu() else { return };
    for (name, kv, n) in [
        ("llama-tiny-f16", KvFormat::F32, 9),
        ("qwen3-tiny-q80", KvFormat::F32, 16),
        ("gemma3-tiny-q4km", KvFormat::F16, 33),
    ] {
        let row = Row { name, golden: &Golden::load(name), kv };
        row.together(&gpu.caps, n, &mut |graph| Box::new(on_gpu(&gpu, graph)));
    }
}

/// All rows of some goldens; sequences of each on a device run together in these numbers.
fn rows_of<const N: usize>(names: [&str; N], sequences: [usize; N]) {
    let gpu = common::own_gpu();
    for (name, sequences) in names.into_iter().zip(sequences) {
        let golden = &Golden::load(name);
        for kv in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            let row = Row { name, golden, kv };
            let graph = row.graph(&Capabilities::minimal(), &options(kv, 64, 32));
            let mut cpu = on_cpu(&graph);
            let limit = [1e-10, 1e-5, 2e-3][kv as usize];
            let (_, logits) = row.steps(&graph, &mut cpu, &golden.logits, limit);
            // Rounding keys and values moves the logits.
            assert!(kv == KvFormat::F32 || nmse(&golden.logits, &logits) > 1e-9, "{row:?}");
            if kv == KvFormat::F32 {
                row.pieces(&graph, &mut cpu);
            }
            let minimal = Capabilities::minimal();
            row.together(&minimal, 3, &mut |graph| Box::new(on_cpu(graph)));
            let Some(gpu) = &gpu else { continue };
            // Heads and attention are two kernels in the first context, one in the second.
            for (context, most) in [(64, 16), (LONGER, 64)] {
                let graph = row.graph(&gpu.caps, &options(kv, context, most));
                let mut executor = on_gpu(gpu, &graph);
                row.steps(&graph, &mut executor, &logits, [1e-8, 1e-5, 1e-5][kv as usize]);
                row.prompts_in_chunks(&graph, &mut executor, &logits);
                row.pieces(&graph, &mut executor);
                row.submissions(&graph, &mut executor);
                if kv == KvFormat::F16 {
                    row.operations(&graph, &mut executor);
                }
            }
            row.together(&gpu.caps, sequences, &mut |graph| Box::new(on_gpu(gpu, graph)));
        }
        let Some(gpu) = &gpu else { continue };
        for (_, context, together) in IN_RUNS.iter().filter(|(of, ..)| *of == name) {
            in_persistent(gpu, name, golden, *context, *together);
        }
    }
}

/// A golden with a cache.
struct Row<'a> {
    name: &'a str,
    golden: &'a Golden,
    kv: KvFormat,
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.name, self.kv)
    }
}

impl Row<'_> {
    fn graph(&self, caps: &Capabilities, options: &DecodeOptions) -> DecodeGraph {
        self.golden.model.graph_for(caps, options).unwrap()
    }

    /// The choices as far as a cache keeps them.
    fn assert_greedy(&self, chosen: &[u32], from: usize) {
        if self.kv != KvFormat::Q8_0 {
            assert_eq!(chosen, &self.golden.greedy[from..from + chosen.len()], "{self:?}");
        }
    }

    /// Steps over the golden's own tokens have these logits, and its choices.
    fn steps(
        &self,
        graph: &DecodeGraph,
        executor: &mut dyn Execute,
        expected: &[f32],
        limit: f64,
    ) -> (Vec<u32>, Vec<f32>) {
        let (greedy, logits) = observed(graph, executor, &self.golden.forced());
        let error = nmse(expected, &logits);
        assert!(error <= limit, "{self:?} {}: NMSE {error:e}", graph.context);
        self.assert_greedy(&greedy, 0);
        (greedy, logits)
    }

    /// Prompts of lengths around the sizes of chunks and windows, every one of which ends in
    /// another row, have the logits of steps.
    fn prompts_in_chunks(&self, graph: &DecodeGraph, executor: &mut GpuExecutor, steps: &[f32]) {
        let Golden { prompt, greedy, logits, model } = self.golden;
        let (tokens, vocab) = ([&prompt[..], greedy].concat(), model.config.vocab);
        let windows = (0..model.config.n_layers).filter_map(|i| model.config.layer_window(i));
        let lengths = windows.chain([16, 32, 48]).collect::<BTreeSet<_>>().into_iter();
        let lengths = lengths.flat_map(|edge| [edge - 1, edge, edge + 1, edge + 3]);
        let lengths: BTreeSet<usize> =
            lengths.chain([2, 3, tokens.len() - 1]).filter(|n| *n < tokens.len()).collect();
        let (all, limit) = match self.kv {
            KvFormat::F32 => (logits.as_slice(), 1e-8),
            KvFormat::F16 => (logits.as_slice(), 1e-5),
            KvFormat::Q8_0 => (steps, logits_limit(graph)),
        };
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for n in lengths {
            let script = Script { prompt: tokens[..n].to_vec(), generate: 1, ..Script::default() };
            let (_, logits) = observed(graph, executor, &script);
            assert_eq!(logits.len(), vocab, "the last token's alone");
            let row = &all[(n - 1) * vocab..][..vocab];
            let error = nmse(row, &logits);
            assert!(error <= 4.0 * limit, "{self:?}, {n} tokens: {error:e}");
            expected.extend_from_slice(row);
            got.extend(logits);
        }
        let error = nmse(&expected, &got);
        assert!(error <= limit, "{self:?} in chunks: {error:e}");
    }

    /// A prompt that is fed in pieces is one sequence; a piece that does not fit is refused.
    fn pieces(&self, graph: &DecodeGraph, executor: &mut dyn Execute) {
        let mut decoder = Decoder::new(graph, executor);
        for (depth, per_submit, prompts) in
            [(13, 4, Prompts::Chunks), (1, 1, Prompts::TokenByToken), (39, 100, Prompts::Chunks)]
        {
            let script = Script { depth, prompts, generate: 12, ..self.golden.free(per_submit) };
            let run = decoder.run(&script, &mut |_| {}).unwrap();
            assert!(!run.ttft.is_zero() && run.steps.iter().all(|step| !step.is_zero()));
            self.assert_greedy(&run.generated, 0);
            decoder.reset(0).unwrap();
            let (first, second) = self.golden.prompt.split_at(depth);
            for tokens in [first, second] {
                decoder.feed(tokens, prompts).unwrap();
            }
            assert_eq!(decoder.state(StateWord::Choice).unwrap(), run.generated[0]);
        }
        for (tokens, words) in [
            (vec![1; graph.context], "do not fit the context of"),
            (vec![graph.vocab as u32], "beyond the vocabulary"),
            (Vec::new(), "no tokens to run"),
        ] {
            match decoder.feed(&tokens, Prompts::Chunks) {
                Err(Error::Usage(said)) => assert!(said.contains(words), "{said}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Tokens do not depend on the steps per submission.
    fn submissions(&self, graph: &DecodeGraph, executor: &mut dyn Execute) {
        let mut decoder = Decoder::new(graph, executor);
        let mut first = None;
        for steps in [Some(1), Some(4), Some(7), Some(100), None] {
            let script = Script { steps_per_submit: steps, ..self.golden.free(1) };
            let mut heard = Vec::new();
            let run = decoder.run(&script, &mut |t| heard.push(t)).unwrap();
            assert_eq!(heard, run.generated);
            self.assert_greedy(&heard, 0);
            assert_eq!(*first.get_or_insert(heard), run.generated, "{self:?} {steps:?}");
            match steps {
                Some(steps) => assert_eq!(run.submits, 23usize.div_ceil(steps)),
                // By time: how many is the device's affair.
                None => assert!((1..=23).contains(&run.submits), "{}", run.submits),
            }
            assert_eq!(run.decode_steps, 23);
        }
    }

    /// No operation of a device disagrees with the reference.
    fn operations(&self, graph: &DecodeGraph, executor: &mut GpuExecutor) {
        begin(graph, executor, &self.golden.prompt);
        for position in 0..20 {
            let found = diff::part(executor, Part::Steps(1), position).unwrap();
            assert!(found.is_none(), "{self:?} {position}: {found:?}");
        }
    }

    /// Sequences of several lengths choose together as each does alone.
    fn together(
        &self,
        caps: &Capabilities,
        n: usize,
        executor: &mut dyn FnMut(&DecodeGraph) -> Box<dyn Execute>,
    ) {
        /// Steps after the longest prompt: over the edge of Gemma's windows.
        const STEPS: usize = 12;
        let longest = &self.golden.prompt;
        let of = |i: usize| {
            let (first, len) = (i % 3, 1 + (7 * i + 3) % (longest.len() - 3));
            longest[first..].iter().cycle().take(len).copied().collect()
        };
        let mut prompts: Vec<Vec<u32>> = (0..n - 1).map(of).collect();
        prompts.push(longest.clone());
        let one = DecodeOptions { kv: self.kv, ..DecodeOptions::of_step(longest.len() + STEPS) };
        let graph = self.graph(caps, &DecodeOptions { sequences: n, ..one.clone() });
        let mut all = executor(&graph);
        let mut decoder = Decoder::new(&graph, &mut *all);
        let run = decoder.run_together(&prompts, STEPS, 5).unwrap();
        let logits = decoder.logits().unwrap();
        let tokens = decoder.executor.read_words(graph.tokens).unwrap();
        let chosen: Vec<&[u32]> = run.generated.chunks(STEPS + 1).collect();
        assert_eq!((run.steps.len(), chosen.len()), (STEPS, n));
        // A second run on the same caches is the same.
        let again = decoder.run_together(&prompts, STEPS, 1).unwrap();
        assert_eq!(run.generated, again.generated, "{self:?}");

        let single = self.graph(caps, &one);
        let mut alone = executor(&single);
        let mut decoder = Decoder::new(&single, &mut *alone);
        let limit = logits_limit(&single).max(logits_limit(&graph));
        for (i, (prompt, logits)) in prompts.iter().zip(logits.chunks(graph.vocab)).enumerate() {
            // To the position at which all of them end.
            let positions = prompt.len()..longest.len() + STEPS + 1;
            let together: Vec<u32> = positions.map(|at| tokens[at * n + i]).collect();
            assert_eq!(chosen[i], &together[..STEPS + 1]);
            let (prompt, generate) = (prompt.clone(), together.len());
            let script = Script { prompt, generate, ..self.golden.free(4) };
            let own = decoder.run(&script, &mut |_| {}).unwrap().generated;
            if own == together {
                let error = nmse(&decoder.logits().unwrap(), logits);
                assert!(error < limit, "{self:?} x{n}: {error:e}");
            }
            let ties = decoder.ties(&script.prompt, &together, limit).unwrap();
            // A cache that rounds may bring two logits so close that either is chosen.
            assert!(ties == 0 && own == together || self.kv != KvFormat::F32, "{self:?} x{n}");
            assert!(ties <= 1, "{self:?} x{n}: {ties}");
        }
        // Another token is no tie.
        let mut wrong = chosen[0].to_vec();
        wrong[3] = (wrong[3] + 1) % single.vocab as u32;
        let said = decoder.ties(&prompts[0], &wrong, limit);
        assert!(matches!(said, Err(Error::CheckFailed(why)) if why.contains("choice 3 is")));
    }
}

/// Layers that are one dispatch: each stage's output, and the next one's input.
fn in_persistent(gpu: &Device, name: &str, golden: &Golden, context: usize, together: u32) {
    let row = Row { name, golden, kv: KvFormat::F32 };
    let grid = Grid { groups: 1, invocations: 64, prefetch: 2, layers: together };
    let apart = row.graph(&gpu.caps, &options(row.kv, context, 32));
    let way = DecodeOptions { persistent: Persistent::Of(grid), ..options(row.kv, context, 32) };
    let graph = row.graph(&gpu.caps, &way);
    let recording = &graph.recording;
    let in_persistent: Vec<_> = recording.persistent.iter().map(|run| run.layers).collect();
    let said = format!("{name} {context}: runs of {in_persistent:?} layers");
    assert_eq!(in_persistent.iter().sum::<usize>(), golden.model.config.n_layers, "{said}");
    let most = in_persistent.iter().copied().max().unwrap_or(0) as u32;
    assert!(most <= together && (most > 1) == (together > 1), "{said}");
    assert!(recording.dispatches() < apart.recording.dispatches(), "{said}");
    // Waits bring quantised weights; dense ones are loaded ahead of them by what reads them.
    let is_quantised = name.contains("q4") || name.contains("q80");
    let prefetches =
        recording.persistent.iter().any(|run| run.code.text.contains("grid_prefetch_"));
    assert!(prefetches || !is_quantised, "{said}");
    let mut executor = on_gpu(gpu, &graph);
    // One operation of a persistent kernel cannot be looked at alone.
    let error = diff::part(&mut executor, Part::Steps(1), 0).unwrap_err();
    assert!(error.to_string().contains("--persistent off"), "{error}");
    assert!(executor.op_timer(Part::Steps(1)).is_err());
    row.steps(&graph, &mut executor, &golden.logits, 1e-8);
    // Several steps a submission, after a prompt of steps and in chunks, of which runs are no part.
    for prompts in [Prompts::Chunks, Prompts::TokenByToken] {
        let script = Script { prompts, ..golden.free(4) };
        row.assert_greedy(&run(&graph, &mut executor, &script).unwrap().generated, 0);
    }
}

/// The norm of a branch, the sum and the next norm are made by the matrix that reads them, or by a
/// dispatch before it; the mixture decides which of two tensors has the stream. The head makes the
/// last norm itself if its rows quantise their input to integers. A hint for the layers' matrices
/// that cannot hold for the head takes it apart.
#[test]
fn norms_are_made_by_their_readers_in_any_mixture_of_ways() {
    let gpu = common::own_gpu();
    let (minimal, generous) =
        (Capabilities::minimal(), lathe_harness::plan::backend_text::generous());
    let own = gpu.as_ref().map_or_else(|| minimal.clone(), |gpu| gpu.caps.clone());
    let (gemma, llama) = ("gemma3-tiny-f16", "llama-tiny-q4km");
    for (name, all, hint, [qkv, ffn, residual, norms]) in [
        (gemma, [&own, &minimal], None, [6, 7, 1, 0]),
        (gemma, [&own, &minimal], Some("residual_rms_norm"), [0, 0, 14, 0]),
        (gemma, [&own, &minimal], Some("fused_ffn"), [6, 0, 8, 0]),
        // The first layer's norm is its matrix's too, which every hint for either takes apart.
        (gemma, [&own, &minimal], Some("gemv"), [0, 7, 7, 1]),
        (gemma, [&own, &minimal], Some("rms_norm"), [6, 7, 1, 1]),
        (llama, [&generous; 2], None, [0, 0, 0, 0]),
        (llama, [&generous; 2], Some("rms_norm"), [0, 0, 0, 1]),
        (llama, [&generous; 2], Some("gemv_q"), [0, 0, 0, 1]),
        (llama, [&generous; 2], Some("norm_gemv"), [0, 0, 0, 0]),
    ] {
        let golden = Golden::load(name);
        for caps in all {
            let hints = hint.map_or_else(Hints::new, |kernel| hinted(kernel, "naive"));
            let way = DecodeOptions { kv: KvFormat::F32, hints, ..DecodeOptions::of_step(64) };
            let graph = golden.model.graph_for(caps, &way).unwrap();
            let ops = &graph.recording.ops;
            let count = |name| ops.iter().filter(|op| op.kernel().name == name).count();
            let kernels =
                ["residual_norm_gemv", "residual_norm_ffn", "residual_rms_norm", "rms_norm"];
            assert_eq!(kernels.map(count), [qkv, ffn, residual, norms], "{name} {hint:?}");
            assert!(hint.is_some() || graph.recording.dispatches() <= 48, "{name}");
            let holds = |executor: &mut dyn Execute, limit: f64| {
                let (greedy, logits) = observed(&graph, executor, &golden.forced());
                let error = nmse(&golden.logits, &logits);
                assert!(error <= limit, "{name} {hint:?}: {error:e}");
                assert_eq!(greedy, golden.greedy, "{name} {hint:?}");
            };
            holds(&mut on_cpu(&graph), 1e-10);
            let runs = gpu.as_ref().filter(|_| std::ptr::eq(caps, &own) || caps == &minimal);
            if let Some(gpu) = runs {
                holds(&mut on_gpu(gpu, &graph), 1e-8);
            }
        }
    }
}

/// For many rows, only the variant that stages its normed input pays.
#[test]
fn a_large_head_norms_its_input_with_one_variant_alone() {
    let kernel = lathe_kernels::kernel("norm_gemv").unwrap();
    let fusion = kernel.fuses.as_ref().unwrap();
    for problem in kernel.cases() {
        let is_large = problem.shape.value("ROWS") >= 16_384.0;
        for variant in kernel.variants {
            let expected = match variant.name {
                "soa_dp4a24" => true,
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
    let mut model = common::model("llama-tiny-f16");
    let (vocab, hidden) = (model.config.vocab, model.config.hidden);
    let bytes = vocab * Format::Q8_0.row_bytes(hidden);
    let zeros: Arc<[u8]> = vec![0; bytes].into();
    model.weights.head = Some(WeightRows::new(Format::Q8_0, hidden, Bytes::Owned(zeros, 0..bytes)));
    let caps = lathe_harness::plan::backend_text::generous();
    for (hint, norms) in [(None, 0), (Some("vec2"), 1)] {
        let hints = hint.map_or_else(Hints::new, |variant| hinted("norm_gemv", variant));
        let way = DecodeOptions { hints, ..DecodeOptions::of_step(64) };
        let graph = model.graph_for(&caps, &way).unwrap();
        let is_norm = |selected: &&Selected| selected.op == "output_norm";
        let found: Vec<_> = graph.selected.iter().filter(is_norm).collect();
        assert_eq!(found.len(), norms, "{hint:?}");
        let why = found.first().map_or("", |norm| norm.why.as_str());
        assert!(norms == 0 || why.contains("not fused as norm_gemv: hint"), "{why}");
    }
}

#[test]
fn every_variant_of_every_kernel_decodes_the_same() {
    let Some(gpu) = common::own_gpu() else { return };
    // Kernels of a step depend on model, formats and context.
    let steps = [
        ("gemma3-tiny-f16", 64),
        ("gemma3-tiny-q4km", 64),
        ("llama-tiny-f16", 64),
        ("llama-tiny-q4km", 64),
        ("gemma3-tiny-f16", LONGER),
    ]
    .map(|(name, context)| {
        let golden = Golden::load(name);
        let way = options(KvFormat::F32, context, 32);
        let selected = golden.model.graph_for(&gpu.caps, &way).unwrap().selected;
        (golden, context, selected)
    });
    let mut decoded = BTreeSet::new();
    for kernel in lathe_kernels::kernels() {
        let sampled = kernel.name == "sample";
        for variant in kernel.variants {
            let said = format!("{}/{}", kernel.name, variant.name);
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
            let way = DecodeOptions {
                chunks: Some(Chunks { most: 16, acts: FloatFormat::F32 }),
                sampling: sampled.then_some(common::warm(0.0)),
                hints: hinted(kernel.name, variant.name),
                ..options(KvFormat::F32, *context, 16)
            };
            let graph = match golden.model.graph_for(&gpu.caps, &way) {
                Ok(graph) => graph,
                // Not on this adapter, or not of this model's formats.
                Err(e) => {
                    assert!(e.to_string().contains("cannot hold for"), "{said}: {e}");
                    continue;
                }
            };
            let mut used = graph.selected.iter().filter(|s| s.kernel == kernel.name).peekable();
            if used.peek().is_none() {
                // No model of this kind has such an operation.
                continue;
            }
            assert!(used.all(|s| s.variant == variant.name && s.why == "explicit hint"), "{said}");
            decoded.insert(kernel.name);
            let script = Script { generate: 6, ..golden.free(3) };
            let run = run(&graph, &mut on_gpu(&gpu, &graph), &script).unwrap();
            // Where activations are rounded, a close call may go the other way.
            if !variant.has_own_tolerance() {
                assert_eq!(run.generated, golden.greedy[..6], "{said}");
            }
        }
    }
    for name in ["sample", "norm_gemv", "fused_ffn", "attention_append", "attention_decode"]
        .into_iter()
        .chain(["residual_norm_gemv", "residual_norm_ffn"])
    {
        assert!(decoded.contains(name), "{name} is not in {decoded:?}");
    }
    assert!(decoded.len() >= 12, "{decoded:?}");
}

/// A timed run that starts with the warm-up's cache or counter attends over too many slots. The
/// comparison that would show it is first shown to be able to.
#[test]
fn a_run_after_a_reset_is_a_first_run_and_without_one_is_not() {
    let golden = Golden::load("gemma3-tiny-f16");
    let way = options(KvFormat::F32, 200, 32);
    let graph = golden.model.graph_for(&Capabilities::minimal(), &way).unwrap();
    assert!(graph.caches.iter().any(|c| c.sliding), "the golden has sliding-window layers");
    assert!(graph.caches.iter().any(|c| !c.sliding), "and a global one");
    let gpu = common::own_gpu();
    let mut executors: Vec<Box<dyn Execute>> = vec![Box::new(on_cpu(&graph))];
    executors.extend(gpu.iter().map(|gpu| -> Box<dyn Execute> { Box::new(on_gpu(gpu, &graph)) }));
    for executor in &mut executors {
        let mut decoder = Decoder::new(&graph, executor.as_mut());
        decoder.run(&golden.free(1), &mut |_| {}).unwrap();
        assert_eq!(decoder.state(StateWord::Position).unwrap(), 63, "the warm-up left its count");
        // Not reset: the next prompt continues where the warm-up stopped.
        decoder.feed(&golden.prompt[..1], Prompts::TokenByToken).unwrap();
        let stale = decoder.logits().unwrap();
        let first = &golden.logits[..graph.vocab];
        assert!(nmse(first, &stale) > 1e-3, "a stale cache must be visible");
        // Reset: no trace of it, neither in the counter nor in any cache.
        decoder.reset(0).unwrap();
        assert_eq!(decoder.state(StateWord::Position).unwrap(), 0);
        for cache in &graph.caches {
            for tensor in [cache.k, cache.v] {
                let values = decoder.executor.read_f32(tensor).unwrap();
                assert!(values.iter().all(|v| *v == 0.0));
            }
        }
        let (greedy, logits) = observed(&graph, executor.as_mut(), &golden.forced());
        assert!(nmse(&golden.logits, &logits) <= 1e-8);
        assert_eq!(greedy, golden.greedy);
    }
}

/// Steps compared with the reference; an error where they differ.
fn verify(gpu: &Device, graph: &DecodeGraph, script: &Script) -> Result<usize> {
    let mut reference = on_cpu(graph);
    let mut verifier = Verifier::new(graph, &mut reference, script.seed, 64)?;
    let mut device = on_gpu(gpu, graph);
    Decoder::new(graph, &mut device).observe(script, &mut |step| verifier.compare(step))?;
    Ok(verifier.compared)
}

#[test]
fn the_verifier_accepts_the_device_and_refuses_a_wrong_one() {
    let Some(gpu) = common::own_gpu() else { return };
    let golden = Golden::load("qwen3-tiny-bf16");
    let way = options(KvFormat::F32, 64, 32);
    let mut graph = golden.model.graph_for(&gpu.caps, &way).unwrap();
    assert_eq!(logits_limit(&graph), 1e-8, "all is stored in f32");
    let script = Script { generate: 4, prompts: Prompts::TokenByToken, ..golden.free(1) };
    assert_eq!(verify(&gpu, &graph, &script).unwrap(), 43);
    let silu = "return g / (1.0 + exp(min(-g, 87.0)))";
    sabotage(&mut graph, &gpu, "fused_ffn", silu, &silu.replace("1.0", "1.1"));
    match verify(&gpu, &graph, &script) {
        Err(Error::CheckFailed(reason)) => assert!(reason.contains("position 0"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// Gives a prompt to an executor whose tensors nothing has written.
fn begin(graph: &DecodeGraph, executor: &mut GpuExecutor, prompt: &[u32]) {
    let mut decoder = Decoder::new(graph, executor);
    decoder.reset(0).unwrap();
    decoder.give(0, prompt).unwrap();
    // Matrices of two formats fill one vector, one after the other: poison in what the second will
    // write is no fault of the first.
    for (i, tensor) in graph.recording.tensors.iter().enumerate() {
        if matches!(tensor.content, TensorInit::Activation { .. }) {
            executor.clear(TensorId(i)).unwrap();
        }
    }
}

#[test]
fn diff_names_the_first_operation_that_is_off() {
    let Some(gpu) = common::own_gpu() else { return };
    for name in common::GOLDENS {
        let golden = Golden::load(name);
        let way = options(KvFormat::F16, LONGER, 32);
        let mut graph = golden.model.graph_for(&gpu.caps, &way).unwrap();
        let division = "/ combine_maxima[lid].y";
        let off = "/ (combine_maxima[lid].y + 0.01)";
        sabotage(&mut graph, &gpu, "attention_append", division, off);
        let mut executor = on_gpu(&gpu, &graph);
        begin(&graph, &mut executor, &golden.prompt);
        let found = diff::part(&mut executor, Part::Steps(1), 0).unwrap();
        let found = found.expect("the sabotage is found");
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
        assert!(op.plan.code.text.contains(from), "{from:?} is not in {kernel}/{}", variant.name);
        let text = op.plan.code.text.replace(from, to);
        op.plan =
            Plan::with_text(op.kernel(), variant, &op.shape, &gpu.caps, &text, "sabotage").unwrap();
    }
}

#[test]
fn persistent_kernels_that_cannot_be_are_refused() {
    let golden = Golden::load("llama-tiny-f16");
    let built = |n: usize, sampling| {
        let one = options(KvFormat::F32, 8, 32);
        let way = DecodeOptions { sequences: n, sampling, ..one };
        golden.model.graph_for(&Capabilities::minimal(), &way)
    };
    let said = |result: Result<()>| match result {
        Err(Error::Usage(why)) => why,
        other => panic!("{other:?}"),
    };
    let script = |prompt: &[u32], generate| Script {
        prompt: prompt.to_vec(),
        generate,
        ..Script::default()
    };
    let (one, two) = (built(1, None).unwrap(), built(2, None).unwrap());
    for (graph, script, words) in [
        (&one, script(&[], 1), "empty"),
        (&one, script(&[320], 1), "vocabulary of 320"),
        (&one, script(&[1, 2], 9), "context of 8"),
        (&two, script(&[1, 2], 2), "the graph has 2"),
    ] {
        let why = said(run(graph, &mut on_cpu(graph), &script).map(drop));
        assert!(why.contains(words), "{why}");
    }
    assert!(said(built(0, None).map(drop)).contains("0 sequences"));
    assert!(said(built(2, Some(common::warm(1.0))).map(drop)).contains("decoded greedily"));
    for (prompts, steps, words) in [
        (vec![vec![1]], 1, "1 prompts for a graph of 2"),
        (vec![vec![1], Vec::new()], 1, "sequence 1 is empty"),
        (vec![vec![u32::MAX], vec![1]], 1, "of sequence 0 lies beyond"),
        (vec![vec![1], vec![1]], 8, "do not fit"),
    ] {
        let mut cpu = on_cpu(&two);
        let why = said(Decoder::new(&two, &mut cpu).run_together(&prompts, steps, 1).map(drop));
        assert!(why.contains(words), "{why}");
    }
}

/// Whatever the kernel would prefer for a decode, a cache format or a size: a named variant runs.
#[test]
fn an_explicit_attention_variant_wins_for_every_cache_and_context() {
    let model = common::model("gemma3-tiny-f16");
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
                let way = DecodeOptions { kv, acts, hints, ..DecodeOptions::of_step(context) };
                let graph = model.graph_for(&caps, &way).unwrap();
                graph.selected.into_iter().filter(|s| s.op == "attention").collect::<Vec<_>>()
            };
            for kernel in kernels.into_iter().flatten() {
                for variant in kernel.variants {
                    for s in selected(hinted(kernel.name, variant.name)) {
                        let found = (s.kernel.as_str(), s.variant.as_str(), s.why.as_str());
                        assert_eq!(found, (kernel.name, variant.name, "explicit hint"));
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
    // Gemma's window holds 32 tokens; the others have none, and no later step differs.
    let archs = [(SynthArch::Gemma3Mini, 38), (SynthArch::LlamaMini, 6), (SynthArch::Qwen3Mini, 6)];
    for (arch, generate) in archs {
        for (quant, embed_quant) in [
            (Format::F32, None),
            (Format::F16, Some(Format::Bf16)),
            (Format::Bf16, Some(Format::F32)),
            // With rows no multiple of 256 or of 32, five formats in one model.
            (Format::Q4K, Some(Format::Q6K)),
        ] {
            let model = common::synthetic(&SynthSpec { arch, quant, embed_quant, seed: 3 });
            let graph = model.graph_for(&gpu.caps, &options(KvFormat::F16, 48, 32)).unwrap();
            assert!((1e-5..1e-3).contains(&logits_limit(&graph)), "the cache is f16");
            let script = Script { prompt: vec![2, 5, 7], generate, ..Script::default() };
            verify(&gpu, &graph, &script).unwrap_or_else(|e| panic!("{arch} {quant:?}: {e}"));
        }
    }
}

/// `--logits-out` has a row of each position, the same by both executors.
#[test]
fn logits_of_every_position_are_written() {
    let folder = common::Folder::new();
    let (out, model) = (folder.path("logits.f32"), common::golden_name("qwen3-tiny-bf16.gguf"));
    let decode = ["decode", "--model", &model, "--prompt-tokens", "2,62,302"];
    let written = |executor: &str| -> Vec<f32> {
        let more = ["--executor", executor, "--force-tokens", "75,260", "--logits-out", &out];
        common::ended(&common::lathe(&[&decode[..], &more].concat()), 0);
        bytemuck::pod_collect_to_vec(&std::fs::read(&out).unwrap())
    };
    let cpu = written("cpu");
    assert_eq!(cpu.len(), 5 * 320);
    if common::gpu().is_some() {
        assert!(nmse(&cpu, &written("gpu")) < 1e-5);
    }
}
