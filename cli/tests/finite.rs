//! Values that are not finite: a weight, or a value too large for narrow storage.

use crate::common;

/// A weight that is not finite ends a decode with the operation and the weight, however it runs.
#[test]
fn a_weight_that_is_not_finite_ends_a_decode() {
    let folder = common::Folder::new();
    let (source, path) = (common::golden("qwen3-tiny-bf16.gguf"), folder.path("bad.gguf"));
    let file = lathe_harness::model::ModelFile::open(&source).unwrap();
    let more: [&[&str]; 4] = [
        &[],
        &["--prompt-chunk", "0"],
        &["--temperature", "0.7"],
        &["--temperature", "0.7", "--top-k", "20", "--top-p", "0.9", "--repeat-penalty", "1.2"],
    ];
    for (name, op) in [
        ("blk.0.attn_q.weight", "l0.qkv"),
        ("blk.1.attn_norm.weight", "l1."),
        ("output_norm.weight", "normed"),
    ] {
        let tensor = file.tensor(name).unwrap();
        let mut bytes = std::fs::read(&source).unwrap();
        let at = tensor.range.start;
        let size = tensor.range.len() / tensor.elements() as usize;
        bytes[at..at + size].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        for executor in ["cpu", "gpu"] {
            if executor == "gpu" && common::gpu().is_none() {
                continue;
            }
            for more in more {
                let decode = ["decode", "--model", &path, "--prompt-tokens", "2,5,7", "-n", "6"];
                let how = ["--no-verify", "--executor", executor];
                let out = common::lathe(&[&decode[..], &how, more].concat());
                let said = common::ended(&out, 1);
                let byte = format!("byte {at} of");
                for word in [name, op, "NaN", &byte, "inspect --values"] {
                    assert!(said.contains(word), "{name} {executor} {more:?}: {said}");
                }
            }
        }
        let text = folder.write("text.txt", "two words and more of them");
        let perplexity = ["perplexity", &path, "--text", &text, "--limit", "4"];
        for more in [&[][..], &["--executor", "cpu"]] {
            if !more.is_empty() || common::gpu().is_some() {
                let out = common::lathe(&[&perplexity[..], more].concat());
                let said = common::ended(&out, 1);
                assert!(said.contains(name) && said.contains(op), "{more:?}: {said}");
            }
        }
        if common::gpu().is_some() {
            let diff = ["diff", &path, "--prompt-tokens", "2,5,7"];
            let said = common::ended(&common::lathe(&diff), 1);
            assert!(said.contains(name) && said.contains("inspect --values"), "{said}");
        }
        let said = common::ended(&common::lathe(&["inspect", "--values", &path]), 1);
        assert!(said.contains(name) && said.contains(&format!("byte {at}")), "{said}");
    }
}

/// A golden in bf16 whose `ffn_up` is as many times as large as its `ffn_down` is small: the same
/// function, by way of values that f16 does not hold.
fn stretched(folder: &common::Folder, golden: &str) -> [String; 2] {
    const FACTOR: f32 = 4_194_304.0;
    let [plain, path] = ["plain.gguf", "stretched.gguf"].map(|name| folder.path(name));
    let golden = common::golden_name(golden);
    common::ended(&common::lathe(&["quantize", &golden, "-o", &plain, "--type", "bf16"]), 0);
    let mut bytes = std::fs::read(&plain).unwrap();
    let file = lathe_harness::model::ModelFile::open(&plain).unwrap();
    for layer in 0.. {
        let tensors =
            ["up", "down"].map(|name| file.tensor(&format!("blk.{layer}.ffn_{name}.weight")));
        let [Some(up), Some(down)] = tensors else {
            assert!(layer > 0);
            break;
        };
        for (tensor, factor) in [(up, FACTOR), (down, 1.0 / FACTOR)] {
            assert_eq!(tensor.range.len(), 2 * tensor.elements() as usize, "bf16");
            for value in bytes[tensor.range.clone()].chunks_mut(2) {
                let old = f32::from_bits(u32::from(u16::from_le_bytes([value[0], value[1]])) << 16);
                let new = (old * factor).to_bits() >> 16;
                value.copy_from_slice(&(new as u16).to_le_bytes());
            }
        }
    }
    std::fs::write(&path, bytes).unwrap();
    [plain, path]
}

/// A value that f16 does not hold ends a decode with the operation that left it and the option that
/// has room, and with that option the decode is right.
#[test]
fn a_value_beyond_f16_ends_a_decode_with_its_cure() {
    for golden in ["qwen3-tiny-bf16.gguf", "gemma3-tiny-f16.gguf", "llama-tiny-f16.gguf"] {
        let folder = common::Folder::new();
        let [plain, path] = stretched(&folder, golden);
        for executor in ["cpu", "gpu"] {
            if executor == "gpu" && common::gpu().is_none() {
                continue;
            }
            let decode = |path: &str, more: &[&str]| {
                let args = ["decode", "--model", path, "--prompt-tokens", "2,5,7", "-n", "6"];
                common::lathe(&[&args[..], &["--executor", executor, "--json"], more].concat())
            };
            let tokens = |out: &std::process::Output| {
                common::ended(out, 0);
                let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
                document["generated"].clone()
            };
            let expected = tokens(&decode(&plain, &["--prompt-activations", "f32"]));
            let chunks = "--prompt-activations f32";
            let all = "--activations f32";
            let both = "--prompt-activations f32 --activations f32";
            for (more, cure) in [
                (&[][..], chunks),
                (&["--no-verify"], chunks),
                (&["--temperature", "0.7", "--top-k", "5"], chunks),
                (&["--kv", "q8_0"], chunks),
                (&["--activations", "f16"], both),
                (&["--activations", "f16", "--prompt-chunk", "0", "--no-verify"], all),
            ] {
                let said = common::ended(&decode(&path, more), 1);
                for word in ["position ", "inf after operation l0.ffn", "65504", cure] {
                    assert!(said.contains(word), "{golden} {executor} {more:?}: {said}");
                }
            }
            if executor == "gpu" {
                let diff = ["diff", &path, "--prompt-tokens", "2,5,7"];
                let said = common::ended(&common::lathe(&diff), 1);
                for word in ["(l0.ffn_act)", "65504", chunks] {
                    assert!(said.contains(word), "{golden}: {said}");
                }
            }
            let cured = decode(&path, &["--prompt-activations", "f32"]);
            assert_eq!(tokens(&cured), expected, "{golden} {executor}");
        }
    }
}
