//! Layers that are one dispatch: built-in stages keep the rule of waits in every shape that models
//! have, a step whose waits give up is replaced, and long texts stay the same.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lathe_harness::decode::load::LayerWeights;
use lathe_harness::decode::{
    Checked, Chunks, DecodeGraph, DecodeOptions, Decoder, Looks, Observer, Run, Script, Session,
    Weights, logits_limit,
};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::{Execute, GpuExecutor};
use lathe_harness::gpu::Policy;
use lathe_harness::model::Config;
use lathe_harness::model::synth::{SynthArch, SynthSpec};
use lathe_harness::plan::backend_text;
use lathe_harness::plan::persistent::{LeftOut, Persistent, without_each_stage};
use lathe_harness::plan::recording::{Op, Recording, TensorId};
use lathe_harness::plan::select::parse_hints;
use lathe_harness::plan::weights::{Bytes, WeightRows};
use lathe_kernels::{Capabilities, Format, Grid, KvFormat};

use crate::common::{self, Device, Fault, Faulty, GOLDENS, Golden, LONGER};

/// Capabilities of a data-centre GPU, as far as persistent kernels care.
fn large() -> Capabilities {
    Capabilities { storage_buffers: 64, workgroup_memory: 48 << 10, ..backend_text::generous() }
}

fn of_step(context: usize, grid: Grid) -> DecodeOptions {
    DecodeOptions { persistent: Persistent::Of(grid), ..DecodeOptions::of_step(context) }
}

/// The step of a real shape without its values: one zeroed piece of memory is every matrix, and the
/// vocabulary, which no layer sees, is small.
fn of_shape(arch: SynthArch, matrices: Format, context: usize, grid: Grid) -> DecodeGraph {
    let mini = match arch {
        SynthArch::Gemma3_1b => SynthArch::Gemma3Mini,
        SynthArch::Llama3_2_1b => SynthArch::LlamaMini,
        _ => SynthArch::Qwen3Mini,
    };
    let quant = Format::Bf16;
    let mut model = common::synthetic(&SynthSpec { arch: mini, quant, embed_quant: None, seed: 1 });
    let small = model.config.clone();
    // Hidden, feed-forward, heads, KV heads, width of a head.
    let [hidden, ffn, n_heads, n_kv_heads, head_dim] = match arch {
        SynthArch::Gemma3_1b => [1152, 6912, 4, 1, 256],
        SynthArch::Llama3_2_1b => [2048, 8192, 32, 8, 64],
        _ => [2048, 6144, 16, 8, 128],
    };
    let config = &Config {
        hidden,
        ffn,
        n_heads,
        n_kv_heads,
        head_dim,
        window: small.window.map(|_| 512),
        // A global layer of Gemma's is the sixth.
        n_layers: 6,
        vocab: 1024,
        ..small
    };
    let zeros: Arc<[u8]> = vec![0; 2 * 2 * ffn * hidden].into();
    let matrix = |rows: usize, k: usize| {
        let bytes = rows * matrices.row_bytes(k);
        WeightRows::new(matrices, k, Bytes::Owned(Arc::clone(&zeros), 0..bytes))
    };
    let ones = |n: usize| -> Arc<[f32]> { vec![1.0; n].into() };
    let width = n_heads * head_dim;
    let layer = LayerWeights {
        attn_norm: ones(hidden),
        qkv: vec![matrix(width + 2 * n_kv_heads * head_dim, hidden)],
        qkv_bias: None,
        qk_norm: config.qk_norm.then(|| [ones(head_dim), ones(head_dim)]),
        attn_output: matrix(hidden, width),
        post_attention_norm: config.post_norms.then(|| ones(hidden)),
        ffn_norm: ones(hidden),
        gate_up: vec![matrix(2 * ffn, hidden)],
        ffn_down: matrix(hidden, ffn),
        post_ffw_norm: config.post_norms.then(|| ones(hidden)),
    };
    model.weights = Weights {
        embed: matrix(config.vocab, hidden),
        head: None,
        output_norm: ones(hidden),
        rope_freqs: model.weights.rope_freqs.map(|_| vec![1.0; head_dim / 2]),
        layers: vec![layer; config.n_layers],
    };
    model.config = config.clone();
    model
        .graph_for(&large(), &of_step(context, grid))
        .unwrap_or_else(|e| panic!("{arch} {matrices:?} {context} {grid:?}: {e}"))
}

/// Joining reads each stage's statements: one that touches ahead of its wait what others write, or
/// does not wait once, is an error of the graph.
#[test]
fn layers_of_every_model_are_persistent_kernels_that_keep_the_rule() {
    let grid = |groups, invocations| Grid { groups, invocations, prefetch: 2, layers: u32::MAX };
    for (arch, formats) in [
        (SynthArch::Gemma3_1b, [Format::Bf16, Format::Q4_0]),
        (SynthArch::Llama3_2_1b, [Format::Bf16, Format::Q4K]),
        (SynthArch::Qwen3_1_7b, [Format::Bf16, Format::Q4K]),
    ] {
        for matrices in formats {
            // Heads and attention are two kernels in the first, one in the others.
            for (context, groups) in [(64, 128), (640, 32), (8192, 128)] {
                let graph = of_shape(arch, matrices, context, grid(groups, 256));
                let kernels = &graph.recording.persistent;
                let said = format!("{arch} {matrices:?} {context} {groups}: {}", kernels.len());
                // Three kinds of layers of six in Gemma: the last one has a norm more.
                let layers: Vec<_> = kernels.iter().map(|kernel| kernel.layers).collect();
                match arch {
                    SynthArch::Gemma3_1b => assert_eq!(layers, [5, 1], "{said}"),
                    _ => assert_eq!(layers, [6], "{said}"),
                }
                // Nothing of a layer is left over.
                let in_layers = graph.recording.ops.iter().filter(|op| op.label.layer.is_some());
                let in_persistent = kernels.iter().map(|kernel| kernel.ops.len()).sum::<usize>();
                assert_eq!(in_layers.count(), in_persistent, "{said}");
            }
        }
    }
}

/// Each stage covers all layers, and no dispatch is left out twice.
fn assert_in_all_layers(recording: &Recording, all: &[LeftOut], layers: usize, said: &str) {
    let label = |stage: &LeftOut| recording.ops[stage.ops[0]].label.op;
    for name in ["qkv", "attention", "attn_output", "ffn_gate_up", "ffn_down"] {
        let first = all.iter().find(|stage| label(stage) == name && stage.stage == 0);
        let first = first.unwrap_or_else(|| panic!("{said}: no {name}"));
        assert_eq!(first.ops.len(), layers, "{said}: {name}");
    }
    let mut seen = HashSet::new();
    for stage in all {
        for op in &stage.ops {
            assert_eq!(recording.ops[*op].label.op, label(stage), "{said}");
            assert!(seen.insert((*op, stage.stage)), "{said}: {} twice", label(stage));
        }
    }
    let in_persistent: usize = recording.persistent.iter().map(|kernel| kernel.ops.len()).sum();
    let ops: HashSet<_> = seen.iter().map(|(op, _)| op).collect();
    assert_eq!(ops.len(), in_persistent, "{said}: all operations of runs");
}

/// Layers of one model have other stages than those of another: where V has another format than Q
/// and K, where norms are apart, and where each layer is a run.
#[test]
fn phases_are_left_out_of_layers_that_differ() {
    for name in GOLDENS {
        let model = common::model(name);
        let grid =
            |groups, invocations, prefetch, layers| Grid { groups, invocations, prefetch, layers };
        let all = u32::MAX;
        for (context, grid) in [
            (64, grid(64, 64, 1, all)),
            (64, grid(64, 64, 1, 1)),
            (64, grid(128, 256, 2, all)),
            (64, grid(1, 64, 2, all)),
            (200, grid(128, 256, 2, all)),
            (200, grid(64, 64, 2, all)),
            (200, grid(1, 64, 2, all)),
        ] {
            let said = format!("{name} {context} {grid:?}");
            let graph = model.graph_for(&large(), &of_step(context, grid));
            let graph = graph.unwrap_or_else(|e| panic!("{said}: {e}"));
            let all = without_each_stage(&graph.recording, &large()).unwrap();
            assert_in_all_layers(&graph.recording, &all, model.config.n_layers, &said);
        }
    }
}

/// A step without a stage is as the step, but for that stage: what it is timed for.
#[test]
fn each_stage_can_be_left_out() {
    let grid = Grid { groups: 128, invocations: 256, prefetch: 2, layers: u32::MAX };
    let stages = |text: &str| -> Vec<String> {
        let names = text.lines().filter(|line| line.starts_with("// Stage "));
        names.map(|line| line.split_once(": ").unwrap().1.to_owned()).collect()
    };
    for (arch, matrices) in [
        (SynthArch::Llama3_2_1b, Format::Q4K),
        (SynthArch::Gemma3_1b, Format::Bf16),
        (SynthArch::Qwen3_1_7b, Format::Q4K),
    ] {
        for context in [64, 2048] {
            let recording = of_shape(arch, matrices, context, grid).recording;
            let all = without_each_stage(&recording, &large()).unwrap();
            let said = format!("{arch} {context}");
            let places = all.len();
            assert!(places >= 5, "{said}: {places}");
            let layers: usize = recording.persistent.iter().map(|kernel| kernel.layers).sum();
            assert_in_all_layers(&recording, &all, layers, &said);
            for stage in &all {
                let label = recording.ops[stage.ops[0]].label.op;
                let mut lacking = 0;
                for (full, cut) in recording.persistent.iter().zip(&stage.recording.persistent) {
                    assert_eq!((&full.ops, full.layers), (&cut.ops, cut.layers));
                    let (full, cut) = (stages(&full.code.text), stages(&cut.code.text));
                    if full == cut {
                        continue;
                    }
                    lacking += 1;
                    // Ways of the stage, one after the other.
                    let gone = full.len() - cut.len();
                    let at = (0..=cut.len()).find(|at| full.get(*at) != cut.get(*at)).unwrap();
                    assert_eq!(full[at + gone..], cut[at..], "{said}: {label}");
                    let own = |name: &String| name.starts_with(&format!("{label}, "));
                    assert!(full[at..at + gone].iter().all(own), "{said}: {label}");
                }
                assert!(lacking > 0, "{said}: {label}");
                assert_eq!(stage.recording.stacks, recording.stacks, "{said}: {label}");
            }
        }
    }
}

/// If attention's splits leave few bytes, the output projection combines them itself, and no stage
/// stores results that nothing reads.
#[test]
fn the_output_projection_combines_few_splits() {
    let grid = Grid { groups: 128, invocations: 256, prefetch: 2, layers: u32::MAX };
    for (arch, matrices, context, combines) in [
        (SynthArch::Llama3_2_1b, Format::Bf16, 320, true),
        (SynthArch::Llama3_2_1b, Format::Q4K, 320, true),
        (SynthArch::Llama3_2_1b, Format::Q4K, 2048, false),
        (SynthArch::Qwen3_1_7b, Format::Q4K, 320, true),
        (SynthArch::Gemma3_1b, Format::Q4_0, 320, false),
    ] {
        let graph = of_shape(arch, matrices, context, grid);
        let run = &graph.recording.persistent[0];
        let text = &run.code.text;
        let said = format!("{arch} {matrices:?} {context}");
        assert_eq!(text.contains("m0_combined_chunk("), combines, "{said}");
        assert_eq!(text.contains("_combine(grid_slot"), !combines, "{said}");
        // What attention writes is bound either way; what it does not write is not.
        let attended = graph.recording.tensors.iter().position(|t| t.name == "attention").unwrap();
        let is_bound = run.bound.iter().any(|(_, to)| to.tensors == [TensorId(attended)]);
        assert_eq!(is_bound, !combines, "{said}");
    }
}

/// A grid that is too large for a software adapter: it takes one workgroup after the other, so the
/// first one's barrier times out.
const TOO_MANY: Grid = Grid { groups: 64, invocations: 64, prefetch: 0, layers: u32::MAX };

fn session_options(persistent: Persistent) -> DecodeOptions {
    DecodeOptions {
        context: 64,
        kv: KvFormat::F32,
        store: None,
        steps_per_submit: Some(4),
        persistent,
        ..DecodeOptions::default()
    }
}

#[test]
fn a_session_goes_on_without_persistent_kernels_whose_barriers_time_out() {
    let Some(gpu) = common::own_gpu() else { return };
    if !gpu.adapter.software {
        eprintln!(
            "UNAVAILABLE, not tested: workgroups of {} may all run at once",
            gpu.adapter.name
        );
        return;
    }
    let grid = |groups, invocations| Grid { groups, invocations, ..TOO_MANY };
    assert_eq!(gpu.grid_barrier_fault(grid(1, 32), 5).unwrap(), None);
    assert!(gpu.persistent_grid().unwrap().unwrap_err().contains("software"));
    let fault =
        gpu.grid_barrier_fault(grid(64, 32), 5).unwrap().expect("they cannot all run at once");
    assert!(fault.contains("64 workgroups of 32"), "{fault}");
    for name in ["llama-tiny-q4km", "gemma3-tiny-f16"] {
        let Golden { prompt, mut greedy, model, .. } = Golden::load(name);
        let n = greedy.len();
        // A session ends where the model does.
        let ended = greedy.iter().position(|token| model.config.end_tokens.contains(token));
        greedy.truncate(ended.map_or(greedy.len(), |last| last + 1));
        let generate = |session: &mut Session<'_>| {
            let mut heard = Vec::new();
            let run = session.generate(&prompt[..], n, |token| heard.push(token));
            (run, heard)
        };
        let assumed = session_options(Persistent::Assumed(TOO_MANY));
        let mut session = model.session(&gpu, assumed).unwrap();
        assert!(!session.graph.recording.persistent.is_empty(), "{name}");
        let (run, heard) = generate(&mut session);
        let run = run.unwrap();
        assert_eq!(run.generated, greedy, "{name}");
        assert_eq!(heard, greedy, "{name}: each once");
        let gave_up = run.persistent_gave_up.unwrap();
        // A chunk of the prompt has no runs, so its choice stands; the first step has.
        assert_eq!((gave_up.tokens, gave_up.grid.as_str()), (1, "64x64"), "{name}");
        assert!(gave_up.waits > 0, "{name}");
        assert!(run.steps.is_empty() && run.gpu.is_none(), "{name}: two ways have no figure");
        assert!(!run.ttft.is_zero(), "{name}");
        // From then on nothing gives up, and there are figures.
        assert!(session.graph.recording.persistent.is_empty(), "{name}");
        let (run, heard) = generate(&mut session);
        let run = run.unwrap();
        assert_eq!((&run.generated, &heard), (&greedy, &greedy), "{name}");
        assert_eq!(run.persistent_gave_up, None, "{name}");
        assert_eq!(run.steps.len(), greedy.len() - 1, "{name}");

        // A choice fails loudly, and nobody hears of a token that its steps made.
        let mut session = model.session(&gpu, session_options(Persistent::Of(TOO_MANY))).unwrap();
        for _ in 0..2 {
            let (run, heard) = generate(&mut session);
            let error = run.unwrap_err();
            assert!(matches!(error, Error::GridBarrier { .. }), "{name}: {error}");
            assert!(error.to_string().contains("--persistent off"), "{name}: {error}");
            assert_eq!(heard, greedy[..1], "{name}");
        }
    }
    let said = gpu.persistent_grid().unwrap().unwrap_err();
    assert!(said.contains("waited in vain"), "{said}");
}

/// Hears tokens, steps and their end.
#[derive(Default)]
struct Heard(Vec<u32>, Vec<usize>, usize);

impl Observer for Heard {
    fn token(&mut self, token: u32) {
        self.0.push(token);
    }
    fn look(&mut self, seen: lathe_harness::decode::Seen<'_>) -> Result<()> {
        self.1.push(seen.position);
        Ok(())
    }
    fn looked(&mut self) -> Result<()> {
        self.2 += 1;
        Ok(())
    }
}

/// A decode with an observer hands out each token once, with or without observed steps and with or
/// without a barrier's time-out.
#[test]
fn observers_hear_each_token_once_and_every_step() {
    let Some(gpu) = common::own_gpu() else { return };
    let golden = Golden::load("qwen3-tiny-bf16");
    let many = if gpu.adapter.software { Persistent::Assumed(TOO_MANY) } else { Persistent::Off };
    for (every_step, runs) in
        [(false, many), (true, many), (false, Persistent::Off), (true, Persistent::Off)]
    {
        let mut session = golden.model.session(&gpu, session_options(runs)).unwrap();
        let looks = Looks { verify: Some(4), every_step };
        let mut heard = Heard::default();
        let mut done = Run::default();
        session.decode(&golden.free(4), looks, &mut done, &mut heard).unwrap();
        let Heard(tokens, steps, ends) = heard;
        assert_eq!((&tokens, &done.generated), (&golden.greedy, &golden.greedy));
        assert_eq!(done.verified.unwrap().positions, 4);
        assert_eq!(done.persistent_gave_up.is_some(), runs.is_auto());
        let all: Vec<usize> = (0..if every_step { 63 } else { 0 }).collect();
        assert_eq!((&steps[steps.len() - all.len()..], ends), (&all[..], usize::from(every_step)));
    }
}

/// Wherever a run fails, another goes on after the tokens that were handed out: at full speed and
/// step by step.
#[test]
fn a_run_goes_on_behind_tokens_that_were_handed_out() {
    let Some(gpu) = common::own_gpu() else { return };
    let golden = Golden::load("qwen3-tiny-bf16");
    let greedy = &golden.greedy;
    let graph = golden.model.graph(Some(&gpu), &session_options(Persistent::Off)).unwrap();
    let mut executor = on_gpu(&gpu, &graph);
    let script = golden.free(4);
    let (n, first) = (script.generate, script.prompt.len());
    // Tokens that are chosen, and what comes of the run.
    let decode = |executor: &mut dyn Execute, observed: bool, script: &Script| {
        let (mut heard, mut decoder) = (Vec::new(), Decoder::new(&graph, executor));
        let run = match observed {
            false => decoder.run(script, &mut |token| heard.push(token)),
            true => decoder.observe(script, &mut |step| {
                heard.extend((step.position + 1 >= first).then_some(step.choice));
                Ok(())
            }),
        };
        (heard, run)
    };
    let mut kept = Vec::new();
    for submissions in 0..=(n - 1) / 4 {
        for observed in [false, true] {
            let fault = Rc::new(Cell::new(Fault::Waits(submissions)));
            let mut failing = Faulty { inner: &mut executor, fault, graph: &graph, given: first };
            let (known, run) = decode(&mut failing, observed, &script);
            assert!(matches!(run.unwrap_err(), Error::GridBarrier { .. }), "{submissions}");
            assert_eq!(known, greedy[..known.len()], "{submissions}");
            kept.push(known.len());
            let (heard, run) = decode(&mut executor, observed, &script.behind(&known));
            let run = run.unwrap().behind(&known, Duration::ZERO);
            assert_eq!((&heard, &run.generated), (greedy, greedy), "{submissions} {observed}");
            assert_eq!(run.steps.is_empty(), !known.is_empty(), "two ways have no figure");
        }
    }
    assert!([0, 1, 5].iter().all(|tokens| kept.contains(tokens)), "{kept:?}");
    // The tokens that another run handed out are fed, whatever this one would have chosen.
    let other: Vec<u32> = greedy[..3].iter().map(|token| (token + 1) % 320).collect();
    let (_, run) = decode(&mut executor, false, &script.behind(&other));
    let run = run.unwrap().behind(&other, Duration::ZERO);
    let forced = Script { forced: other.clone(), ..script.clone() };
    let (choices, _) = decode(&mut executor, true, &forced);
    assert_eq!(run.generated[..3], other);
    assert_eq!(run.generated[3], choices[3], "the choice behind what was fed");
    // The first positions are verified of a prompt that is longer than they are: tokens that were
    // handed out come behind all of it.
    let mut decoder = Decoder::new(&graph, &mut executor);
    Checked::begin(&mut decoder, script.behind(&other), Some(3)).unwrap();
    // A text that had ended stays ended.
    let ended = Script { stop_at: vec![other[2]], ..script };
    let (_, run) = decode(&mut executor, false, &ended.behind(&other));
    assert_eq!(run.unwrap().behind(&other, Duration::ZERO).generated, other);
}

fn on_gpu(gpu: &Device, graph: &DecodeGraph) -> GpuExecutor {
    common::executor(gpu, &graph.recording, Policy::Plain)
}

/// Logits of the step at which a graph chooses token `at`.
fn logits_at(gpu: &Device, graph: &DecodeGraph, script: &Script, at: usize) -> Vec<f32> {
    let script = Script { generate: at + 1, ..script.clone() };
    let (_, logits) = common::observed(graph, &mut on_gpu(gpu, graph), &script);
    logits[logits.len() - graph.vocab..].to_vec()
}

/// 512 greedy tokens of a trained checkpoint (128 on a software adapter), and 96 of each
/// architecture, whose contexts hold more and whose steps take as long: with every fusion apart, by
/// default, and with layers that are one dispatch on one workgroup, which waits for nobody. Three
/// ways of rounding, one text; where two logits are as close as rounding may bring them, texts go
/// their own ways from there, and the test says so.
#[test]
fn long_greedy_texts_are_the_same_apart_fused_and_persistent() {
    let Some(gpu) = common::gpu() else { return };
    let rusty = std::fs::read_to_string(common::golden("rusty/rusty.json")).unwrap();
    let rusty: serde_json::Value = serde_json::from_str(&rusty).unwrap();
    let prompt = common::ids(&rusty["cases"][0]["prompt"]);
    let of_rusty = if gpu.adapter.software { 128 } else { 512 };
    let tiny = |name: &'static str| (name, Golden::load(name).prompt, 96);
    let models = [
        ("rusty/rusty-q6_k", prompt, of_rusty),
        tiny("gemma3-tiny-q4km"),
        tiny("llama-tiny-q4km"),
        tiny("qwen3-tiny-bf16"),
    ];
    // Steps this small keep no more than one core busy.
    std::thread::scope(|scope| {
        for (name, prompt, most) in &models {
            scope.spawn(move || three_ways(&common::own_gpu().unwrap(), name, prompt, *most));
        }
    });
}

fn three_ways(gpu: &Device, name: &str, prompt: &[u32], most: usize) {
    let model = common::model(name);
    let context = model.config.context_length.min((prompt.len() + most - 1).max(LONGER));
    let n = most.min(context - prompt.len() + 1);
    let build = |apart: bool, persistent| {
        let naive: &[&str] = match apart {
            false => &[],
            true => {
                &["rms_norm", "residual_rms_norm", "glu", "qkv_rope_append", "attention_decode"]
            }
        };
        let hints = naive.iter().map(|kernel| format!("{kernel}=naive"));
        let hints = parse_hints(&hints.collect::<Vec<_>>()).unwrap();
        let chunks = Some(Chunks::with_cache(KvFormat::F32));
        let of_step = DecodeOptions::of_step(context);
        let way = DecodeOptions { kv: KvFormat::F32, chunks, hints, persistent, ..of_step };
        model.graph_for(&gpu.caps, &way).unwrap()
    };
    let grid = Grid { groups: 1, invocations: 64, prefetch: 2, layers: u32::MAX };
    let graphs = [
        ("apart", build(true, Persistent::Off)),
        ("by default", build(false, Persistent::Off)),
        ("as runs", build(false, Persistent::Of(grid))),
    ];
    let fused = |graph: &DecodeGraph| {
        let fuses = |op: &&Op| op.kernel().fuses.is_some();
        graph.recording.ops.iter().filter(fuses).count()
    };
    let [apart, default, whole] = graphs.each_ref().map(|(_, graph)| graph);
    assert!(apart.recording.dispatches() > default.recording.dispatches(), "{name}");
    assert!(fused(apart) < fused(default), "{name}: {}", fused(apart));
    let in_persistent: usize = whole.recording.persistent.iter().map(|kernel| kernel.layers).sum();
    assert_eq!(in_persistent, model.config.n_layers, "{name}");
    let script = Script {
        prompt: prompt.to_vec(),
        generate: n,
        steps_per_submit: Some(16),
        ..Script::default()
    };
    let texts = graphs.each_ref().map(|(way, graph)| {
        let begun = Instant::now();
        let mut executor = on_gpu(gpu, graph);
        let run = Decoder::new(graph, &mut executor).run(&script, &mut |_| {}).unwrap();
        eprintln!("{name} {way}: {:.1} s", begun.elapsed().as_secs_f64());
        assert_eq!(run.generated.len(), n, "{name} {way}");
        run.generated
    });
    for ((way, graph), text) in graphs.iter().zip(&texts).skip(1) {
        let Some(at) = texts[0].iter().zip(text).position(|(a, b)| a != b) else { continue };
        let (a, b) = (texts[0][at] as usize, text[at] as usize);
        for graph in [apart, graph] {
            let logits = logits_at(gpu, graph, &script, at);
            let scale = logits.iter().fold(0f32, |most, v| most.max(v.abs()));
            let bound = scale * logits_limit(graph).sqrt() as f32;
            let margin = (logits[a] - logits[b]).abs();
            eprintln!("{name} {way}: token {at} is {b}, apart {a}: {margin:e} of {bound:e}");
            assert!(margin <= bound, "{name} {way}: token {at}: {a} or {b}, by {margin:e}");
        }
    }
}
