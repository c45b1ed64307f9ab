//! Verification: correct runs of every storage are accepted, wrong ones refused, and a refusal's
//! command shows the fault.

use std::sync::Arc;

use lathe_harness::data::record::Verified;
use lathe_harness::decode::{DecodeGraph, DecodeOptions, Decoder, Script, Verifier, logits_limit};
use lathe_harness::error::{Error, Result};
use lathe_harness::execute::CpuExecutor;
use lathe_harness::plan::recording::{Recording, TensorInit};
use lathe_harness::plan::weights::WeightRows;
use lathe_kernels::{Capabilities, FloatFormat, KvFormat};

use crate::common::{self, Golden, on_cpu};

/// Verifies the first `positions` of a run of `device` against the reference of `graph`.
pub(crate) fn verified(
    graph: &DecodeGraph,
    device: (&DecodeGraph, CpuExecutor),
    script: &Script,
    positions: usize,
) -> Result<Verified> {
    let mut reference = on_cpu(graph);
    let mut verifier = Verifier::new(graph, &mut reference, 0, positions)?;
    let (wrong, mut device) = device;
    let mut decoder = Decoder::new(wrong, &mut device);
    decoder.observe(script, &mut |seen| verifier.compare(seen))?;
    Ok(verifier.verified())
}

/// Runs whose storage rounds other values up, and one that rounds none, are correct.
#[test]
fn rounding_is_no_fault() {
    let golden = Golden::load("qwen3-tiny-bf16");
    let mut measured = 0;
    for (kv, acts) in [
        (KvFormat::F16, FloatFormat::F32),
        (KvFormat::F32, FloatFormat::F16),
        (KvFormat::F16, FloatFormat::F16),
        (KvFormat::Q8_0, FloatFormat::F32),
    ] {
        let way = DecodeOptions { kv, acts, ..DecodeOptions::of_step(64) };
        let graph = golden.model.graph_for(&Capabilities::minimal(), &way).unwrap();
        let exact = CpuExecutor::new(Arc::new(graph.recording.in_f32()));
        let step = if kv == KvFormat::Q8_0 { 1.0 / 128.0 } else { 1.0 / 1024.0 };
        let other = |seed| CpuExecutor::nudged(Arc::clone(&graph.recording), step / 4.0, seed);
        for device in [exact, other(91), other(92)] {
            let seen = verified(&graph, (&graph, device), &golden.forced(), 16).unwrap();
            assert_eq!(seen.positions, 16);
            // The limit of a position whose error is measured is its own.
            measured += usize::from(seen.limit > logits_limit(&graph) / 64.0);
        }
    }
    assert!(measured > 0, "no position was measured");
}

/// A device whose weights or operations are wrong in one place is refused in every format.
#[test]
fn planted_faults_are_found_in_every_format() {
    type Plant = fn(&mut Recording);
    fn values<'r>(recording: &'r mut Recording, name: &str) -> &'r mut Arc<[f32]> {
        let mut tensors = recording.tensors.iter_mut();
        match &mut tensors.find(|t| t.name == name).unwrap().content {
            TensorInit::Values(values) => values,
            other => panic!("{other:?}"),
        }
    }
    let plants: [(&str, Plant); 4] = [
        ("a norm times 1.2", |recording| {
            let norm = values(recording, "l1.attn_norm");
            *norm = norm.iter().map(|v| 1.2 * v).collect();
        }),
        ("a dropped dispatch", |recording| {
            let at = recording.ops.iter().position(|op| op.label.to_string() == "l1.ffn_down");
            recording.ops.remove(at.unwrap());
            recording.tail -= 1;
        }),
        ("angles of another base", |recording| {
            for tensor in &mut recording.tensors {
                if let TensorInit::Rope(spec) = &mut tensor.content {
                    spec.base *= 0.25;
                }
            }
        }),
        ("two heads swapped", |recording| {
            for tensor in recording.tensors.iter_mut().filter(|t| t.name == "l1.attn_output") {
                let TensorInit::Weights(rows, packing) = &tensor.content else { continue };
                let (format, k) = (rows.format, rows.k);
                let mut all = Vec::new();
                for row in 0..rows.rows() {
                    let mut values = vec![0.0; k];
                    lathe_harness::plan::weights::decode(format, rows.row(row), &mut values);
                    values.rotate_left(k / 4);
                    all.extend(values);
                }
                let swapped = WeightRows::from_f32(format, rows.order, k, &all);
                tensor.content = TensorInit::Weights(swapped, *packing);
            }
        }),
    ];
    let golden = Golden::load("qwen3-tiny-bf16");
    for kv in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
        for acts in [FloatFormat::F32, FloatFormat::F16] {
            let way = DecodeOptions { kv, acts, ..DecodeOptions::of_step(64) };
            let graph = golden.model.graph_for(&Capabilities::minimal(), &way).unwrap();
            let found = |wrong: &DecodeGraph| {
                verified(&graph, (wrong, on_cpu(wrong)), &golden.forced(), 16)
            };
            found(&graph).unwrap();
            for (name, plant) in plants {
                let mut wrong = graph.clone();
                plant(Arc::make_mut(&mut wrong.recording));
                match found(&wrong) {
                    Err(Error::CheckFailed(why)) => {
                        let says = ["NMSE", "KL", "likeliest", "lathe diff", "--prompt-chunk 0"];
                        assert!(says.iter().all(|word| why.contains(word)), "{name}: {why}");
                    }
                    other => panic!("{name}, {kv:?} {acts:?}: {other:?}"),
                }
            }
        }
    }
}

/// The commands between backticks in a refusal.
fn named(said: &str) -> Vec<Vec<&str>> {
    let commands = said.split('`').skip(1).step_by(2);
    commands.map(|command| command.split(' ').skip(1).collect()).collect()
}

/// However a decode walks, the command that its refusal names finds the wrong operation.
#[test]
fn a_refusal_names_the_command_that_shows_the_fault() {
    if common::gpu().is_none() {
        return;
    }
    let folder = common::Folder::new();
    let model = common::golden_name("qwen3-tiny-bf16.gguf");
    let wrong = |kernel: &str, variant: &str, from: &str, to: &str| {
        let text = &lathe_kernels::source(kernel, variant).unwrap().text;
        assert!(text.contains(from), "{from:?} is not in {kernel}/{variant}");
        let file = folder.write(&format!("{kernel}.wgsl"), &text.replace(from, to));
        format!("{kernel}/{variant}={file}")
    };
    let silu = "g / (1.0 + exp(min(-g, 87.0)))";
    let steps = wrong("fused_ffn", "naive", silu, &silu.replace("1.0", "1.1"));
    let chunks = wrong("matmul", "naive", "y[at] = sum;", "y[at] = 1.02 * sum;");
    for (hint, more, op) in [
        (&steps, &[][..], "ffn_gate_up"),
        (&steps, &["--prompt-chunk", "0"], "ffn_gate_up"),
        (&steps, &["--verify"], "ffn_gate_up"),
        (&steps, &["--kv", "f32", "--activations", "f16"], "ffn_gate_up"),
        (&steps, &["--force-tokens", "7,8", "--verify"], "ffn_gate_up"),
        (&steps, &["--logits-out", &folder.path("logits")], "ffn_gate_up"),
        (&chunks, &[], "qkv"),
        (&chunks, &["--prompt-chunk", "16", "--kv", "q8_0"], "qkv"),
        (&chunks, &["--prompt-activations", "f32"], "qkv"),
        (&chunks, &["--verify"], "qkv"),
    ] {
        let decode = ["decode", &model, "--hint", hint, "-n", "4", "--untuned"];
        let decode = [&decode[..], &["--prompt-tokens", "2,62,302"], more].concat();
        let said = common::ended(&common::lathe(&decode), 1);
        let commands = named(&said);
        let found = commands.iter().any(|command| {
            let out = common::lathe(command);
            let said = common::stderr(&out);
            common::code(&out) == 1 && said.contains("first difference") && said.contains(op)
        });
        assert!(found, "{decode:?}: {said}");
    }
}
