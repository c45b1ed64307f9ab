//! Sampling on the device: many draws against the distribution and against the reference, whole
//! decodes on both executors, and parts of a head.

use std::ops::Range;
use std::sync::Arc;

use lathe_harness::decode::sampling::sample_token;
use lathe_harness::decode::{
    Chunks, DecodeGraph, DecodeOptions, Decoder, Sampling, Script, Verifier,
};
use lathe_harness::execute::Execute;
use lathe_harness::gpu::Policy;
use lathe_harness::plan::Plan;
use lathe_harness::plan::recording::{Label, Recording, TensorInit};
use lathe_kernels::sample::Sample;
use lathe_kernels::{Capabilities, FloatFormat, KvFormat, Params, Problem, State, StateWord};
use lathe_reference::sample;

use crate::common::{self, Device, on_cpu, on_gpu};

const SEED: u32 = 5;

/// Basic settings: nothing but the temperature bends the distribution.
const PLAIN: Sampling = common::warm(0.8);

/// Tokens that a variant draws from the same logits at these positions.
fn draws(
    gpu: &Device,
    variant: &str,
    logits: &[f32],
    s: &Sampling,
    seed: u32,
    positions: Range<usize>,
) -> Vec<u32> {
    let kernel = lathe_kernels::kernel("sample").unwrap();
    let sample = Sample {
        n: logits.len(),
        temperature: s.temperature,
        top_k: s.top_k as usize,
        top_p: s.top_p,
        repeat_penalty: s.repeat_penalty,
        last_n: 0,
    };
    let shape = sample.shape();
    let plan = Plan::of(kernel, kernel.variant(variant).unwrap(), &shape, &gpu.caps).unwrap();
    let mut recording = Recording::default();
    let state = recording.tensor("state", TensorInit::Words(4));
    let tokens = recording.tensor("tokens", TensorInit::Words(positions.end + 1));
    let values = recording.tensor("logits", TensorInit::Values(logits.into()));
    let bindings = [("logits", values), ("tokens", tokens), ("state", state)];
    recording.op(Label { layer: None, op: "sample" }, plan, shape, &bindings);
    let mut executor = common::executor(gpu, &Arc::new(recording), Policy::Plain);
    executor.write_words(state, StateWord::Seed as usize, &[seed]).unwrap();
    executor.write_words(state, StateWord::Position as usize, &[positions.start as u32]).unwrap();
    for first in positions.clone().step_by(2000) {
        let steps = (positions.end - first).min(2000);
        executor.run(&[lathe_harness::plan::recording::Part::Steps(steps)]).unwrap();
    }
    executor.read_words(tokens).unwrap()[positions.start + 1..].to_vec()
}

#[test]
fn twenty_thousand_draws_fit_the_distribution() {
    let Some(gpu) = common::own_gpu() else { return };
    let logits: Vec<f32> = (0..50u32).map(|i| ((i * 29) % 50) as f32 / 16.0 - 1.0).collect();
    // What the reference draws fits the distribution, and a device draws what the reference draws,
    // which is looked at from the first position on and up to the last.
    const DRAWS: usize = 20_000;
    for (top_k, top_p, variants) in [
        (30, 0.95, &[("threshold", 2000), ("candidates", 500)][..]),
        (0, 0.95, &[("histogram", 2000), ("nucleus", 2000), ("naive", 250)]),
        (0, 1.0, &[("race", 2000)]),
    ] {
        let settings = Sampling { temperature: 1.2, top_k, top_p, ..PLAIN };
        let own: Vec<_> = (0..DRAWS)
            .map(|at| sample_token(&settings, &logits, &[0; DRAWS + 1], at, SEED))
            .collect();
        for &(variant, count) in variants {
            for positions in [0..count, DRAWS - count..DRAWS] {
                let tokens = draws(&gpu, variant, &logits, &settings, SEED, positions.clone());
                let mut pairs = tokens.iter().zip(&own[positions.clone()]);
                let differs = pairs.position(|(token, own)| token != own);
                assert_eq!(differs, None, "{variant}, from position {positions:?} on");
            }
        }
        let plain = sample::Sampling {
            temperature: settings.temperature,
            top_k: top_k as usize,
            top_p: settings.top_p,
            repeat_penalty: 1.0,
        };
        let mut counts = vec![0.0; logits.len()];
        own.iter().for_each(|t| counts[*t as usize] += 1.0);
        let (mut chi, mut cells) = (0.0, 0.0f64);
        for (seen, p) in counts.iter().zip(sample::probabilities(&logits, &[], &plain)) {
            if p > 0.0 {
                let expected = p * DRAWS as f64;
                chi += (seen - expected).powi(2) / expected;
                cells += 1.0;
            }
        }
        // Mean f, variance 2f: five deviations are below 1e-5 for a true distribution.
        let freedom = cells - 1.0;
        eprintln!("{settings:?}: chi-square {chi:.1} of {freedom}");
        assert!((chi - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{settings:?}: {chi}");
    }
}

/// Logits against the assumptions of a fast top-k: that few are near the k-th, and that they lie
/// apart.
#[test]
fn adversarial_logits_are_drawn_exactly() {
    let Some(gpu) = common::own_gpu() else { return };
    // Beyond 16384 logits a group of `threshold` has several vectors, v % 4096 of its own.
    let many = 65_537;
    // Of one size where they can be: each is compiled anew.
    let few = 5000;
    let all = |n: usize, f: &dyn Fn(usize) -> f32| (0..n).map(f).collect::<Vec<f32>>();
    let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 1e-40, -1e-40, 3.0, -3.0];
    let cases = [
        ("all equal", all(few, &|_| 1.5)),
        ("all minus infinity", all(few, &|_| f32::NEG_INFINITY)),
        ("all NaN", all(few, &|_| f32::NAN)),
        ("ascending", all(many, &|i| i as f32 / 4096.0)),
        ("descending", all(many, &|i| i as f32 / -4096.0)),
        (
            "all but ten masked",
            all(many, &|i| match i % 6000 {
                77 => (i / 6000) as f32,
                _ => f32::NEG_INFINITY,
            }),
        ),
        ("ties on the threshold", all(few, &|i| if i % 167 == 3 { 2.0 } else { (i % 2) as f32 })),
        // More than fit in workgroup memory in a few groups, each beating those before it.
        (
            "crowded groups",
            all(many, &|i| match i / 4 % 4096 {
                0..300 => 1.0 + i as f32 / many as f32,
                _ => 0.0,
            }),
        ),
        ("odd numbers", all(few, &|i| odd[i * i % 83 % odd.len()])),
        ("one number", vec![f32::NAN]),
    ];
    let settings = [
        (0.7, 50, 0.9, 1.5),
        (0.7, 256, 1.1, 1.0),
        (0.7, 0, 1.0, 1.0),
        (0.7, 0, 0.6, 1.5),
        (0.7, 2000, 0.9, 1.0),
        // Weights that hardly differ: what is apart is so by its key alone.
        (1e6, 0, 0.5, 1.1),
        (1e6, 2100, 0.5, 1.0),
        // Eight winners of eleven may all go.
        (1e6, 0, 0.01, 1.0),
    ];
    let all = cases.iter().flat_map(|case| settings.map(|settings| (case, settings)));
    for ((name, logits), settings) in all {
        let (temperature, top_k, top_p, repeat_penalty) = settings;
        let settings = Sampling { temperature, top_k, top_p, repeat_penalty, repeat_last_n: 0 };
        let mut own = vec![0];
        for position in 0..8 {
            own.push(sample_token(&settings, logits, &own, position, SEED));
        }
        let variants: &[_] = match top_k {
            0 if top_p >= 1.0 => &["histogram", "race"],
            0 => &["histogram", "nucleus"],
            1..=256 => &["histogram", "threshold", "candidates"],
            _ => &["histogram"],
        };
        for variant in variants {
            let drawn = draws(&gpu, variant, logits, &settings, SEED, 0..8);
            assert_eq!(drawn, own[1..], "{variant}: {name}, {settings:?}");
        }
    }
}

/// The smaller logit has no weight, not one of 2^40; at these positions its noise rounds it up to
/// the largest sum, and it has the lower index.
#[test]
fn a_token_without_weight_is_drawn_where_its_noise_says_so() {
    let Some(gpu) = common::own_gpu() else { return };
    let logits = [10f32.next_down(), 10.0, -5.0];
    for position in [2_470_478, 4_826_271] {
        for (variant, top_k) in
            [("threshold", 2), ("candidates", 2), ("histogram", 2), ("naive", 2), ("race", 0)]
        {
            let settings = Sampling { temperature: 3.397_188e-8, top_k, ..PLAIN };
            let own = sample_token(&settings, &logits, &vec![0; position + 1], position, 0);
            assert_eq!(own, 0, "the reference at position {position}");
            let drawn = draws(&gpu, variant, &logits, &settings, 0, position..position + 1);
            assert_eq!(drawn, [own], "{variant}, position {position}");
        }
    }
}

fn built(name: &str, caps: &Capabilities, sampling: Option<Sampling>) -> DecodeGraph {
    let options = DecodeOptions {
        kv: KvFormat::F32,
        chunks: Some(Chunks { most: 16, acts: FloatFormat::F32 }),
        sampling,
        ..DecodeOptions::of_step(64)
    };
    common::model(name).graph_for(caps, &options).unwrap()
}

#[test]
fn both_executors_draw_the_same_tokens() {
    let Some(gpu) = common::own_gpu() else { return };
    let all = [
        ("gemma3-tiny-f16", Sampling { top_k: 40, top_p: 0.9, ..PLAIN }),
        ("llama-tiny-f16", Sampling { top_p: 0.95, repeat_penalty: 1.2, ..PLAIN }),
        ("qwen3-tiny-bf16", Sampling { temperature: 0.0, repeat_penalty: 1.3, ..PLAIN }),
    ];
    for (name, settings) in all {
        let graph = built(name, &gpu.caps, Some(settings));
        let options = Script {
            prompt: vec![2, 62, 302],
            generate: 40,
            steps_per_submit: Some(7),
            seed: SEED,
            ..Default::default()
        };
        let mut device = on_gpu(&gpu, &graph);
        let mut reference = on_cpu(&graph);
        let run = |e: &mut dyn Execute, script: &Script| {
            Decoder::new(&graph, e).run(script, &mut |_| {}).unwrap().generated
        };
        let tokens = run(&mut device, &options);
        assert_eq!(tokens, run(&mut reference, &options), "{name}");
        assert_eq!(tokens, run(&mut device, &options), "{name}: the same seed again");
        let other = run(&mut device, &Script { seed: SEED + 1, ..options.clone() });
        assert_eq!(tokens == other, settings.temperature == 0.0, "{name}: another seed");
        let mut verifier = Verifier::new(&graph, &mut reference, SEED, 64).unwrap();
        let mut decoder = Decoder::new(&graph, &mut device);
        decoder.observe(&options, &mut |s| verifier.compare(s)).unwrap();
        assert_eq!(verifier.compared, 40, "the prompt's last token and every one after it");
    }
}

#[test]
fn the_verifier_refuses_a_token_that_was_not_drawn() {
    let graph = built("llama-tiny-f16", &Capabilities::minimal(), Some(PLAIN));
    let options = Script { prompt: vec![2, 62], generate: 3, seed: SEED, ..Default::default() };
    let mut device = on_cpu(&graph);
    let mut reference = on_cpu(&graph);
    let mut verifier = Verifier::new(&graph, &mut reference, SEED, 64).unwrap();
    let mut decoder = Decoder::new(&graph, &mut device);
    let wrong = decoder.observe(&options, &mut |mut seen| {
        seen.choice ^= u32::from(seen.position == 1);
        verifier.compare(seen)
    });
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("position 1") && error.contains("draws"), "{error}");
}

#[test]
fn a_head_in_parts_decodes_the_same() {
    let Some(gpu) = common::own_gpu() else { return };
    for name in ["gemma3-tiny-f16", "llama-tiny-f16"] {
        let whole = built(name, &gpu.caps, None);
        let caps = Capabilities { binding_bytes: 12 << 10, ..gpu.caps.clone() };
        let parts = built(name, &caps, None);
        let count =
            |g: &DecodeGraph, op| g.recording.ops.iter().filter(|o| o.label.op == op).count();
        assert_eq!((count(&whole, "lm_head"), count(&whole, "embed")), (1, 1));
        assert!(count(&parts, "lm_head") > 2 && count(&parts, "embed") > 2);
        let options =
            Script { prompt: vec![2, 310, 62], generate: 20, seed: 0, ..Default::default() };
        let run = |graph| common::observed(graph, &mut on_gpu(&gpu, graph), &options);
        assert_eq!(run(&whole), run(&parts), "{name}");
        // Of the bytes of a step only the vector that every part of the head reads, and the row
        // that every part of the table may hold, count once a part: the matrix counts once.
        let bytes = |g: &DecodeGraph| {
            let first = |op| g.recording.ops.iter().find(|o| o.label.op == op).unwrap();
            let (head, table) = (first("lm_head"), first("embed"));
            let row = Problem { shape: table.shape.clone(), state: State::default() };
            let vector = FloatFormat::F32.bytes() as f64 * head.shape.value("K");
            let again = |op, bytes: f64| (count(g, op) - 1) as f64 * bytes;
            g.bytes(1) - again("lm_head", vector) - again("embed", table.kernel().cost(&row).bytes)
        };
        assert_eq!(bytes(&whole), bytes(&parts), "{name}");
    }
}
