//! Goldens whose metadata, tensors and tokenizer are changed in ways that keep the file a sound
//! GGUF. Each is refused by name or decoded, and nothing panics.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use lathe_harness::decode::{Chunks, DecodeOptions, Decoder, Model, Prompts, Script};
use lathe_harness::error::Result;
use lathe_harness::model::gguf::ValueType;
use lathe_harness::model::tokenizer::Tokenizer;
use lathe_harness::model::{GgmlType, ModelFile, describe};
use lathe_kernels::{Capabilities, FloatFormat};

use crate::common;
use crate::corpus::Random;
use crate::gguf::{Meta, Parts, Tensor};

/// One of several.
fn one<T: Copy>(r: &mut Random, all: &[T]) -> T {
    all[r.below(all.len())]
}

/// The number under a key of the architecture, if there is one.
fn number(parts: &Parts, key: &str) -> Option<u32> {
    let (_, (_, value)) = parts.metadata.iter().find(|(k, _)| k.ends_with(key))?;
    Some(u32::from_le_bytes(value.clone().try_into().ok()?))
}

/// Sizes at the edges of blocks, vectors, heads and nothing.
const SIZES: &[u32] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 128, 255, 256, 257,
];
const FLOATS: &[f32] = &[0.0, -0.0, 1e-45, 1e-38, 1e-6, 0.5, 1.0, 1e4, 3e38, -1.0, f32::INFINITY];
const TYPES: &[GgmlType] = &[
    GgmlType::F32,
    GgmlType::F16,
    GgmlType::Bf16,
    GgmlType::Q4_0,
    GgmlType::Q8_0,
    GgmlType::Q4K,
    GgmlType::Q6K,
];

/// Makes one change and returns its description.
fn change(parts: &mut Parts, r: &mut Random) -> String {
    match r.below(10) {
        // A scalar gets another value.
        0..4 => {
            let scalars: Vec<usize> = (0..parts.metadata.len())
                .filter(|i| parts.metadata[*i].1.1.len() == 4 && !is_list(&parts.metadata[*i].1))
                .collect();
            let (key, (ty, value)) = &mut parts.metadata[scalars[r.below(scalars.len())]];
            *value = match ty {
                ValueType::F32 => one(r, FLOATS).to_le_bytes().to_vec(),
                _ => {
                    let old = u32::from_le_bytes(value.clone().try_into().unwrap());
                    let near = [old / 2, old.wrapping_mul(2), old + 1, old.wrapping_sub(1)];
                    let new = if r.below(2) == 0 { one(r, &near) } else { one(r, SIZES) };
                    new.to_le_bytes().to_vec()
                }
            };
            format!("{key} = {value:?}")
        }
        // An entry goes.
        4 => {
            let at = r.below(parts.metadata.len());
            format!("without {}", parts.metadata.remove(at).0)
        }
        // An array is cut, or gets other elements.
        5 => {
            let lists: Vec<usize> =
                (0..parts.metadata.len()).filter(|i| is_list(&parts.metadata[*i].1)).collect();
            let Some(at) = (!lists.is_empty()).then(|| lists[r.below(lists.len())]) else {
                return String::new();
            };
            let (key, (_, value)) = &mut parts.metadata[at];
            let elements = 12 + r.below(value.len().max(13) - 12);
            let byte = r.below(256) as u8;
            let last = value.len().max(1) - 1;
            value[elements.min(last)] = byte;
            format!("{key}, byte {elements} = {byte}")
        }
        // A tensor is stored in another type.
        6 => {
            let at = r.below(parts.tensors.len());
            let ty = one(r, TYPES);
            let tensor = &mut parts.tensors[at];
            retype(tensor, ty);
            format!("{} as {:?}", tensor.name, tensor.ty)
        }
        // A tensor gets other dimensions.
        7 => {
            let at = r.below(parts.tensors.len());
            let tensor = &mut parts.tensors[at];
            match r.below(4) {
                0 => tensor.dims.reverse(),
                1 => tensor.dims.push(one(r, &[1, 1, 2, 0])),
                2 => drop(tensor.dims.pop()),
                _ => {
                    let n = tensor.dims.len();
                    if n > 0 {
                        tensor.dims[r.below(n)] = u64::from(one(r, SIZES));
                    }
                }
            }
            let ty = tensor.ty;
            retype(tensor, ty);
            format!("{} is {:?}", tensor.name, tensor.dims)
        }
        // A tensor comes, goes or is another's twin.
        8 => {
            let at = r.below(parts.tensors.len());
            match r.below(3) {
                0 => format!("without {}", parts.tensors.remove(at).name),
                1 => {
                    let mut tensor = parts.tensors[at].clone();
                    tensor.name = one(r, &["output.weight", "rope_freqs.weight", "x"]).to_owned();
                    let name = tensor.name.clone();
                    parts.tensors.push(tensor);
                    format!("{name} is there")
                }
                _ => {
                    let other = r.below(parts.tensors.len());
                    let name = parts.tensors[at].name.clone();
                    parts.tensors[at].name = parts.tensors[other].name.clone();
                    parts.tensors[other].name = name;
                    format!("{at} and {other} change places")
                }
            }
        }
        // All sizes are drawn anew and the tensors follow: another model, of odd shape.
        _ => reshape(parts, r),
    }
}

fn is_list((ty, _): &Meta) -> bool {
    *ty == ValueType::Array
}

/// Gives a tensor a type, and bytes for its dimensions; f16 where its rows are no whole blocks.
fn retype(tensor: &mut Tensor, ty: GgmlType) {
    let row = tensor.dims.first().copied().unwrap_or(1);
    tensor.ty = if row.is_multiple_of(ty.block_len()) { ty } else { GgmlType::F16 };
    let elements: u64 = tensor.dims.iter().product();
    let bytes = elements / tensor.ty.block_len() * tensor.ty.block_bytes();
    let old = std::mem::take(&mut tensor.data);
    // Small values of every type: what is repeated was part of one.
    tensor.data = (0..bytes as usize)
        .map(|i| old.get(i % old.len().max(1)).map_or(0, |b| b & 0x3b))
        .collect();
}

fn reshape(parts: &mut Parts, r: &mut Random) -> String {
    let set = |parts: &mut Parts, key: &str, value: usize| {
        let entry = parts.metadata.iter_mut().find(|(k, _)| k.ends_with(key));
        if let Some((_, (_, old))) = entry {
            *old = (value as u32).to_le_bytes().to_vec();
        }
    };
    let had_head_dim = number(parts, ".attention.key_length").is_some();
    let kv = one(r, &[1, 2, 3]);
    let heads = kv * one(r, &[1, 2, 3, 5, 9]);
    let mut head_dim = one(r, &[2, 4, 6, 8, 16, 30, 32, 34]);
    let mut hidden = one(r, &[8, 10, 32, 33, 64, 96, 256]);
    if !had_head_dim {
        head_dim = one(r, &[2, 4, 6, 8, 16]);
        hidden = heads * head_dim;
    }
    let ffn = one(r, &[1, 2, 7, 32, 33, 64, 256]);
    for (key, value) in [
        (".embedding_length", hidden),
        (".feed_forward_length", ffn),
        (".attention.head_count", heads),
        (".attention.head_count_kv", kv),
        (".attention.key_length", head_dim),
        (".attention.value_length", head_dim),
        (".attention.key_length_swa", head_dim),
        (".attention.value_length_swa", head_dim),
        (".rope.dimension_count", head_dim),
        (".rope.dimension_count_swa", head_dim),
    ] {
        set(parts, key, value);
    }
    let (q, kv_rows) = (heads * head_dim, kv * head_dim);
    let other_types = r.below(2) == 0;
    for tensor in &mut parts.tensors {
        let part = tensor.name.trim_end_matches(".weight").rsplit('.').next().unwrap().to_owned();
        let vocab = tensor.dims.last().copied().unwrap_or(1) as usize;
        let dims: &[usize] = match part.as_str() {
            "token_embd" | "output" => &[hidden, vocab],
            "attn_q" => &[hidden, q],
            "attn_k" | "attn_v" => &[hidden, kv_rows],
            "attn_output" => &[q, hidden],
            "attn_q_norm" | "attn_k_norm" => &[head_dim],
            "rope_freqs" => &[head_dim / 2],
            "ffn_gate" | "ffn_up" => &[hidden, ffn],
            "ffn_down" => &[ffn, hidden],
            _ => &[hidden],
        };
        tensor.dims = dims.iter().map(|d| *d as u64).collect();
        let vector = dims.len() == 1;
        let ty = if other_types && !vector { one(r, TYPES) } else { tensor.ty };
        retype(tensor, ty);
        if part == "rope_freqs" {
            tensor.ty = GgmlType::F32;
            tensor.data = 1.0f32.to_le_bytes().repeat(head_dim / 2);
        }
    }
    format!("hidden {hidden}, heads {heads}/{kv} x {head_dim}, ffn {ffn}")
}

/// Reads all that decoding reads, decodes a few tokens and returns their number.
fn decode(path: &Path) -> Result<usize> {
    let file = ModelFile::open(path)?;
    let _ = describe(&file);
    let tokenizer = file.vocabulary().ok().flatten().map(Tokenizer::new);
    if let Some(Ok(tokenizer)) = tokenizer {
        let tokens = tokenizer.encode("A trait is, 12 α\n", true);
        let _ = tokens.map(|tokens| tokenizer.decode(&tokens));
    }
    let model = Model::open(path)?;
    let config = &model.config;
    let options = DecodeOptions {
        chunks: Some(Chunks { most: 16, acts: FloatFormat::F16 }),
        ..DecodeOptions::of_step(32.min(config.context_length))
    };
    let graph = model.graph_for(&Capabilities::minimal(), &options)?;
    let mut executor = common::on_cpu(&graph);
    // A context may be shorter than what is to be tried.
    let (generate, length) = (3.min(options.context), 19.min(options.context.saturating_sub(2)));
    let prompt: Vec<u32> = (0..length.max(1) as u32).map(|i| i % config.vocab as u32).collect();
    let mut tokens = 0;
    for prompts in [Prompts::Chunks, Prompts::TokenByToken] {
        let run = Script {
            prompt: prompt.clone(),
            prompts,
            generate: generate.min(options.context + 1 - prompt.len()),
            steps_per_submit: Some(1),
            ..Script::default()
        };
        tokens += Decoder::new(&graph, &mut executor).run(&run, &mut |_| {})?.generated.len();
    }
    Ok(tokens)
}

#[test]
fn changed_models_are_refused_by_name_or_decoded() {
    let seeds: std::ops::Range<u64> = match std::env::var("LATHE_SEEDS") {
        Ok(text) => {
            let (a, b) = text.split_once("..").unwrap();
            a.parse().unwrap()..b.parse().unwrap()
        }
        _ => 0..300,
    };
    let golden = |name: &str| std::fs::read(common::golden(&format!("{name}.gguf"))).unwrap();
    let goldens = common::GOLDENS.map(|name| Parts::of(&golden(name)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.gguf");
    let (mut decoded, mut refused) = (0, BTreeMap::<String, usize>::new());
    let mut panics = Vec::new();
    let total = seeds.end - seeds.start;
    for seed in seeds {
        let r = &mut Random::of(seed);
        let mut parts = goldens[seed as usize % goldens.len()].clone();
        let changes: Vec<String> = (0..=r.below(3)).map(|_| change(&mut parts, r)).collect();
        std::fs::File::create(&path).unwrap().write_all(&parts.bytes()).unwrap();
        match catch_unwind(AssertUnwindSafe(|| decode(&path))) {
            Ok(Ok(tokens)) => decoded += usize::from(tokens > 0),
            Ok(Err(e)) => {
                let says = e.to_string();
                assert!(says.contains("changed.gguf"), "{seed}: {says}");
                *refused.entry(says).or_default() += 1;
            }
            Err(_) => panics.push(format!("seed {seed}: {}", changes.join("; "))),
        }
    }
    eprintln!("{decoded} decoded, {} reasons", refused.len());
    assert!(panics.is_empty(), "panics:\n{}", panics.join("\n"));
    // Were all refused, or none, little would have been tried.
    assert!(decoded > total as usize / 10, "{decoded} of {total}");
    assert!(refused.len() > 20, "{refused:#?}");
}
