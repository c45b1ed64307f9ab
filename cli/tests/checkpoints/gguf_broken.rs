//! Broken and hostile GGUF files: each is refused with a message that names place and fault.

use lathe_harness::model::gguf::ValueType;
use lathe_harness::model::gguf::writer::GgufWriter;
use lathe_harness::model::{Config, GgmlType, Gguf};

use crate::gguf::{Meta, Parts, array, find_name, float, int, long, switch, text, texts};

/// A file, and the beginning of the message that refuses it: byte offset and site.
type File = (Vec<u8>, String);

/// A name of the fault, the file, and the reason in the message.
type Case = (&'static str, File, &'static str);

const ARCHITECTURES: [&str; 3] = ["llama", "gemma3", "qwen3"];
/// The key whose value a case breaks, and the tensor that a case breaks.
const KEY: &str = "test.bad";
const TENSOR: &str = "test.weight";

fn file(bytes: Vec<u8>, at: usize, site: &str) -> File {
    (bytes, format!("byte {at}, {site}: "))
}

fn writer() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer.add("general.architecture", "llama");
    writer
}

/// A sound file with these bytes at this offset.
fn patched(at: usize, patch: &[u8]) -> Vec<u8> {
    let mut writer = writer();
    writer.add_tensor(TENSOR, GgmlType::F32, &[8, 2]);
    let mut bytes = writer.zeroed();
    bytes[at..at + patch.len()].copy_from_slice(patch);
    bytes
}

fn header(at: usize, patch: &[u8], field: &str) -> File {
    file(patched(at, patch), at, &format!("header field `{field}`"))
}

fn version(patch: u32) -> File {
    header(4, &patch.to_le_bytes(), "version")
}

/// The entry [`KEY`] with this value; the message names a byte `skip` into the value.
fn value(ty: ValueType, bytes: &[u8], skip: usize) -> File {
    raw_value(ty.code(), bytes, 4 + skip)
}

fn raw_value(type_code: u32, bytes: &[u8], skip: usize) -> File {
    let bytes = writer().add_raw(KEY.as_bytes(), type_code, bytes).zeroed();
    let at = find_name(&bytes, KEY) + 8 + KEY.len() + skip;
    file(bytes, at, &format!("metadata `{KEY}`"))
}

/// An array as the value of [`KEY`]; the message names a byte `skip` into it.
fn list(ty: ValueType, len: u64, elements: &[u8], skip: usize) -> File {
    value(ValueType::Array, &array(ty.code(), len, elements), skip)
}

fn alignment(ty: ValueType, value: &[u8]) -> File {
    let key = "general.alignment";
    let bytes = writer().add_raw(key.as_bytes(), ty.code(), value).zeroed();
    let at = find_name(&bytes, key);
    file(bytes, at, &format!("metadata `{key}`"))
}

fn alignment_of(value: u32) -> File {
    alignment(ValueType::U32, &value.to_le_bytes())
}

/// The tensor [`TENSOR`] as it stands, after 64 bytes of data of another; the message names a byte
/// `skip` after its name.
fn tensor(type_code: u32, dims: &[u64], offset: u64, skip: usize) -> File {
    let mut writer = writer();
    writer.add_tensor("other.weight", GgmlType::F32, &[16]);
    writer.add_tensor_raw(TENSOR, type_code, dims, offset);
    let bytes = writer.zeroed();
    let at = find_name(&bytes, TENSOR) + 8 + TENSOR.len() + skip;
    file(bytes, at, &format!("tensor `{TENSOR}`"))
}

/// A file that lists F32 tensors of one value under these names.
fn named(names: &[&str]) -> Vec<u8> {
    let mut writer = writer();
    for name in names {
        writer.add_tensor(name, GgmlType::F32, &[1]);
    }
    writer.zeroed()
}

/// Offsets after a tensor's name: of its dimensions, and with one dimension of type and offset.
const DIMS: usize = 4;
const TYPE: usize = DIMS + 8;
const OFFSET: usize = TYPE + 4;

/// Files whose index is refused.
#[rustfmt::skip]
fn of_index() -> Vec<Case> {
    use ValueType::{Array, Bool, String, U8, U32, U64};
    let key = |patch: u64| file(patched(24, &patch.to_le_bytes()), 24, "key of metadata entry 0");
    let count = |at, patch: u64, field| header(at, &patch.to_le_bytes(), field);
    let empty_key = writer().add_raw(b"", U8.code(), &[0]).add("after", &0u32).zeroed();
    let long_key = writer().add(&"k".repeat(65536), &0u32).zeroed();
    let odd_key = writer().add_raw(b"ab\xff", U8.code(), &[0]).zeroed();
    let twice = writer().add(KEY, &1u32).add("between", &0u32).add(KEY, &1u32).zeroed();
    let (second, between) = (find_name(&twice, "between") + 8 + 7 + 4 + 4, "metadata `test.bad`");
    let (mut dims, site) = tensor(0, &[1], 64, 0);
    let at = find_name(&dims, TENSOR) + 8 + TENSOR.len();
    dims[at..at + 4].copy_from_slice(&[0xff; 4]);
    let (overlap, _) = tensor(0, &[4], 32, 0);
    let overlap_at = overlap.len() - 32;
    let tensor_twice = named(&[TENSOR, "other.weight", TENSOR]);
    let third = find_name(&tensor_twice, "other.weight") + 8 + 12 + 24;
    let names_at = find_name(&named(&["x"]), "llama") + 8 + "llama".len();
    let name = |bytes: Vec<u8>, skip| file(bytes, names_at + skip, "name of tensor 0");
    let mut odd_name = named(&[TENSOR]);
    odd_name[names_at + 8] = 0x80;

    vec![
        ("empty file", file(vec![], 0, "header field `magic`"), "the file ends too early"),
        ("bad magic", header(0, b"GGJT", "magic"), "begins with \"GGJT\""),
        ("big-endian", version(3 << 24), "big-endian"),
        ("version 0", version(0), "version 0 is not supported"),
        ("version 1", version(1), "version 1 is not supported"),
        ("version 4", version(4), "version 4 is not supported"),
        ("version max", version(u32::MAX), "version 4294967295 is not supported"),
        ("tensor count beyond the file", count(8, 1 << 40, "tensor_count"),
            "1099511627776 entries"),
        ("entry count beyond the file", count(16, u64::MAX, "metadata_kv_count"),
            "beyond the file"),
        // Small enough for the size of the file, yet the tensor list is no metadata.
        ("entry count beyond the entries", file(patched(16, &[3]), 94, "key of metadata entry 2"),
            "a string of 562949953421312 bytes is beyond the file"),
        ("tensor count beyond the tensors", file(patched(8, &[3]), 120, "name of tensor 1"),
            "the name is empty"),
        ("key length beyond the file", key(5000), "a string of 5000 bytes is beyond the file"),
        ("key length overflows", key(u64::MAX), "beyond the file"),
        ("empty key", file(empty_key, 69, "key of metadata entry 1"), "the name is empty"),
        ("key too long", file(long_key, 69, "key of metadata entry 1"),
            "65536 bytes, more than the 65535"),
        ("key not UTF-8", file(odd_key, 69 + 8, "key of metadata entry 1"),
            "not UTF-8 (valid for 2 bytes)"),
        ("key twice", file(twice, second, between), "used before, at byte 69"),
        ("unknown value type", raw_value(13, &[0; 16], 0), "unknown value type 13"),
        ("bool neither 0 nor 1", value(Bool, &[2], 0), "a bool is 0 or 1, not 2"),
        ("string beyond the file", value(String, &1000u64.to_le_bytes(), 0),
            "a string of 1000 bytes"),
        ("string length overflows", value(String, &(u64::MAX - 7).to_le_bytes(), 0),
            "beyond the file"),
        ("string not UTF-8", value(String, b"\x02\0\0\0\0\0\0\0\xc3\x28", 8), "not UTF-8"),
        ("nested array", list(Array, 1, &array(U8.code(), 1, &[0]), 0), "arrays of arrays"),
        ("array of unknown type", value(Array, &array(77, 0, &[]), 0), "unknown value type 77"),
        ("array beyond the file", list(U32, 1000, &[0; 8], 4),
            "an array of 1000 u32 is beyond the file"),
        ("array length overflows", list(U64, 1 << 61, &[0; 8], 4),
            "an array of 2305843009213693952 u64"),
        ("array of strings beyond the file", list(String, 1 << 40, &[0; 64], 4),
            "an array of 1099511627776 string"),
        ("string of an array beyond the file", list(String, 1, &900u64.to_le_bytes(), 12),
            "a string of 900 bytes"),
        ("string of an array not UTF-8", list(String, 1, b"\x01\0\0\0\0\0\0\0\xff", 20),
            "not UTF-8"),
        ("bool of an array neither 0 nor 1", list(Bool, 3, &[0, 1, 9], 14), "not 9"),
        ("alignment of wrong type", alignment(U64, &32u64.to_le_bytes()),
            "the value is u64, expected u32"),
        ("alignment 0", alignment_of(0), "the alignment 0 is not a power of two"),
        ("alignment no power of two", alignment_of(24), "the alignment 24 is not a power of two"),
        ("alignment too small", alignment_of(4), "the alignment 4 is not a power of two"),
        ("absurd alignment", alignment_of(1 << 31),
            "the alignment 2147483648 is not a power of two"),
        ("5 dimensions", tensor(0, &[1; 5], 64, 0), "5 dimensions"),
        ("dimensions max", (dims, site), "4294967295 dimensions"),
        ("elements overflow", tensor(0, &[1 << 32, 1 << 32], 64, DIMS), "overflows"),
        ("elements overflow i64", tensor(24, &[1 << 63], 64, DIMS), "overflows"),
        ("elements overflow behind a zero", tensor(0, &[0, 1 << 40, 1 << 40], 64, DIMS),
            "overflows"),
        ("bytes overflow", tensor(28, &[1 << 62], 64, DIMS), "overflows"),
        ("unknown tensor type", tensor(99, &[8], 64, TYPE), "unknown tensor type 99"),
        ("removed tensor type", tensor(4, &[32], 64, TYPE), "tensor type 4 (Q4_2) was removed"),
        ("row no multiple of a block", tensor(2, &[48, 2], 64, DIMS),
            "rows of 48 values do not divide into Q4_0 blocks of 32"),
        // As many values as a superblock, but not in a row.
        ("row no multiple of a superblock", tensor(12, &[128, 2], 64, DIMS),
            "rows of 128 values do not divide into Q4_K blocks of 256"),
        ("offset misaligned", tensor(0, &[1], 40, OFFSET),
            "offset 40 is not a multiple of the alignment 32"),
        ("offset past the end", tensor(0, &[1], 64, OFFSET),
            "(4 bytes at offset 64 of the data) reach past"),
        ("offset overflows", tensor(0, &[1], u64::MAX - 31, OFFSET), "reach past the end"),
        ("offset past the end without data", tensor(0, &[0], 96, OFFSET),
            "(0 bytes at offset 96 of the data) reach past"),
        ("tensors overlap", file(overlap, overlap_at, "tensor `test.weight`"),
            "its data overlap those of tensor `other.weight`"),
        ("tensors at the same place", file(tensor(0, &[16], 0, 0).0, 160, "tensor `test.weight`"),
            "its data overlap those of tensor `other.weight`"),
        ("tensor twice", file(tensor_twice, third, "tensor `test.weight`"),
            "used before, at byte 69"),
        ("empty tensor name", name(named(&[""]), 0), "the name is empty"),
        ("tensor name too long", name(named(&[&"n".repeat(65)]), 0), "65 bytes, more than the 64"),
        ("tensor name not UTF-8", name(odd_name, 8), "not UTF-8 (valid for 0 bytes)"),
    ]
}

/// The model, refused for this key.
fn key(model: &Parts, key: &str) -> File {
    let (key, bytes) = (model.full(key), model.bytes());
    let at = find_name(&bytes, &key);
    file(bytes, at, &format!("metadata `{key}`"))
}

/// The model, refused for this tensor.
fn refused_tensor(model: &Parts, name: &str) -> File {
    (model.bytes(), format!("tensor `{name}`: "))
}

/// Files whose index is sound and whose model is refused.
#[rustfmt::skip]
fn of_model() -> Vec<Case> {
    let llama = || Parts::smallest("llama");
    let gemma3 = || Parts::smallest("gemma3");
    let with = |name: &str, value: Meta| key(&llama().set(name, value), name);
    let gemma3_with = |name: &str, value: Meta| key(&gemma3().set(name, value), name);
    let shaped = |name: &str, dims: &[u64]| refused_tensor(&llama().tensor(name, dims), name);
    let extra = |name: &str| shaped(name, &[8]);
    let no_architecture = llama().unset("general.architecture").bytes();
    let three_heads = llama().unset(".attention.key_length").set(".attention.head_count", int(3));
    let many_layers = llama().set(".block_count", int(u32::MAX));
    let gemma3_freqs = gemma3().tensor("rope_freqs.weight", &[2]);
    let no_vocabulary = llama().tensor("token_embd.weight", &[8, 0]).bytes();
    let embedding_at = Gguf::parse(&no_vocabulary).unwrap().data_start as usize;
    // All values are zero here, and rope divides by them.
    let freqs_0 = llama().tensor("rope_freqs.weight", &[2]).bytes();
    let freqs_at = freqs_0.len() - 8;
    let eps = ".attention.layer_norm_rms_epsilon";
    let above_zero = "it must be above zero";
    let finite = "it must be finite and above zero";
    let not = "not implemented";
    let vocabulary = "the vocabulary has 6 tokens";
    let rows = "`token_embd.weight` has 6 rows";

    vec![
        ("no architecture", (no_architecture, String::new()),
            "metadata `general.architecture`: is missing"),
        ("another architecture", with("general.architecture", text("mamba")),
            "`mamba` is not supported; supported are gemma3, llama, qwen3"),
        ("architecture of wrong type", with("general.architecture", int(3)), "expected a string"),
        ("shard of a split file", with("split.count", int(2)), "one shard of a split file"),
        ("no layers", with(".block_count", int(0)), above_zero),
        ("layers as a float", with(".block_count", float(1.0)), "found f32 1"),
        ("layers beyond u32", with(".block_count", long(1 << 32)), "found u64 4294967296"),
        ("layers beyond the tensors", refused_tensor(&many_layers, "blk.1.attn_norm.weight"),
            "missing"),
        ("hidden 0", with(".embedding_length", int(0)), above_zero),
        ("ffn 0", with(".feed_forward_length", int(0)), above_zero),
        ("context 0", with(".context_length", int(0)), above_zero),
        ("no heads", with(".attention.head_count", int(0)), above_zero),
        ("heads per layer", with(".attention.head_count", (ValueType::Array, array(5, 1, &[2, 0, 0,
            0]))),
            "4294967295, found array [1 × i32]"),
        ("no KV heads", with(".attention.head_count_kv", int(0)), above_zero),
        ("KV heads do not divide", with(".attention.head_count_kv", int(3)),
            "does not divide the 2 of attention.head_count"),
        ("heads do not divide hidden", key(&three_heads, ".attention.head_count"),
            "does not divide the 8 of embedding_length"),
        ("head_dim 0", with(".attention.key_length", int(0)), above_zero),
        ("head_dim odd", with(".attention.key_length", int(5)),
            "a head of 5 cannot be rotated in pairs"),
        ("values of another width", with(".attention.value_length", int(8)),
            "u32 8 is refused: only the width of a key's head"),
        ("rope of part of the head", with(".rope.dimension_count", int(2)), "partial rope"),
        ("epsilon NaN", with(eps, float(f32::NAN)), finite),
        ("epsilon 0", with(eps, float(0.0)), finite),
        ("epsilon negative", with(eps, float(-1e-6)), finite),
        ("epsilon infinite", with(eps, float(f32::INFINITY)), finite),
        ("rope base 0", with(".rope.freq_base", float(0.0)), finite),
        ("rope base negative", with(".rope.freq_base", float(-1.0)), finite),
        ("rope base NaN", with(".rope.freq_base", float(f32::NAN)), finite),
        ("local rope base 0", gemma3_with(".rope.freq_base_swa", float(0.0)), finite),
        ("window 0", gemma3_with(".attention.sliding_window", int(0)), above_zero),
        ("another window pattern", gemma3_with(".attention.sliding_window_pattern", int(4)),
            "every 6th layer"),
        ("window where there is none", with(".attention.sliding_window", int(16)), not),
        ("bos beyond the vocabulary", with("tokenizer.ggml.bos_token_id", int(6)), vocabulary),
        ("eos beyond the vocabulary", with("tokenizer.ggml.eos_token_id", int(u32::MAX)),
            vocabulary),
        ("end of turn beyond the vocabulary", with("tokenizer.ggml.eot_token_id", int(6)),
            vocabulary),
        ("end of message is no number", with("tokenizer.ggml.eom_token_id", text("1")),
            "expected a whole number"),
        ("tokens of another count", with("tokenizer.ggml.tokens", texts(&["a"; 7])), rows),
        ("vocabulary of another size", with(".vocab_size", int(7)), rows),
        ("empty vocabulary", file(no_vocabulary, embedding_at, "tensor `token_embd.weight`"),
            "0 rows"),
        ("soft-capping", gemma3_with(".final_logit_softcapping", float(30.0)), not),
        ("soft-capping of attention", gemma3_with(".attn_logit_softcapping", float(50.0)), not),
        ("soft-capping NaN", gemma3_with(".final_logit_softcapping", float(f32::NAN)), not),
        ("logit scale", with(".logit_scale", float(0.5)), not),
        ("attention scale", with(".attention.scale", float(0.1)), not),
        ("experts", with(".expert_count", int(8)), "experts are not implemented"),
        ("linear rope scaling", with(".rope.scaling.factor", float(8.0)), "linear rope scaling"),
        ("other rope scaling", with(".rope.scaling.type", text("yarn")), not),
        ("attention not causal", with(".attention.causal", switch(false)), "only causal"),
        ("bias of attention", extra("blk.0.attn_q.bias"), "is not part of llama"),
        ("bias of the output", extra("output.bias"), "is not part of llama"),
        ("tensors of experts", extra("blk.0.ffn_gate_exps.weight"), "is not part of llama"),
        ("layer beyond the count", extra("blk.1.attn_norm.weight"), "is not part of llama"),
        ("norm of another architecture", extra("blk.0.attn_q_norm.weight"), "is not part of llama"),
        ("rope_freqs of another architecture", refused_tensor(&gemma3_freqs, "rope_freqs.weight"),
            "is not part of gemma3"),
        ("rope_freqs too long", shaped("rope_freqs.weight", &[4]),
            "dimensions [4], the metadata ask for [2]"),
        ("rope_freqs 0", file(freqs_0, freqs_at, "tensor `rope_freqs.weight`"), "value 0 is 0"),
        ("output of another vocabulary", shaped("output.weight", &[8, 7]), "ask for [8, 6]"),
    ]
}

fn refused(cases: Vec<Case>, read: impl Fn(&[u8]) -> Result<(), String>) {
    let wrong = cases.into_iter().filter_map(|(what, (bytes, begins), says)| {
        let Err(message) = read(&bytes) else { return Some(format!("{what}: accepted")) };
        let reason = message.strip_prefix(&begins);
        let is_said = reason.is_some_and(|reason| reason.contains(says));
        (!is_said).then(|| format!("{what}: `{message}` is not `{begins}… {says}`"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn config(bytes: &[u8]) -> Result<Config, String> {
    let gguf = Gguf::parse(bytes).expect("the index is sound");
    Config::from_gguf(&gguf, bytes).map_err(|e| e.to_string())
}

#[test]
fn broken_indices_are_refused_by_offset_and_site() {
    refused(of_index(), |bytes| Gguf::parse(bytes).map(drop).map_err(|e| e.to_string()));
}

#[test]
fn models_are_refused_by_key_or_tensor() {
    refused(of_model(), |bytes| config(bytes).map(drop));
}

#[test]
fn every_missing_key_is_named() {
    for arch in ARCHITECTURES {
        let mut needed = vec![
            ".context_length",
            ".embedding_length",
            ".block_count",
            ".feed_forward_length",
            ".attention.head_count",
            ".attention.layer_norm_rms_epsilon",
        ];
        if arch != "llama" {
            needed.push(".rope.freq_base");
        }
        if arch == "gemma3" {
            needed.push(".attention.sliding_window");
        }
        for key in needed {
            let error = config(&Parts::smallest(arch).unset(key).bytes()).unwrap_err();
            assert_eq!(error, format!("metadata `{arch}{key}`: is missing"));
        }
    }
}

#[test]
fn every_missing_tensor_and_every_wrong_dimension_is_named() {
    for arch in ARCHITECTURES {
        let model = Parts::smallest(arch);
        for tensor in &model.tensors {
            let (name, dims) = (&tensor.name, &tensor.dims);
            let error = config(&model.clone().without(name).bytes()).unwrap_err();
            assert_eq!(error, format!("tensor `{name}`: is missing"));
            let mut wrong = vec![[&dims[..], &[1]].concat(), vec![]];
            for i in 0..dims.len() {
                let mut other = dims.clone();
                other[i] += 1;
                wrong.push(other);
            }
            for other in wrong {
                let error = config(&model.clone().tensor(name, &other).bytes()).unwrap_err();
                // Other rows of the embedding mean another vocabulary, seen before the shape.
                let named = error.contains(&format!("`{name}`"));
                assert!(named, "{arch} {name} {other:?}: {error}");
            }
        }
    }
}

#[test]
fn neutral_values_are_no_obstacle() {
    let model = Parts::smallest("gemma3")
        .set("split.count", int(1))
        .set(".final_logit_softcapping", float(0.0))
        .set(".rope.scaling.type", text("linear"))
        .set(".rope.scaling.factor", float(1.0))
        .set(".expert_count", int(0))
        .set(".attention.sliding_window_pattern", int(6))
        .set(".attention.causal", switch(true))
        .set(".rope.freq_base_swa", float(20_000.0))
        .tensor("output.weight", &[8, 6]);
    let config = config(&model.bytes()).unwrap();
    assert!(!config.tied_head);
    assert_eq!((config.layer_rope_base(0), config.layer_window(0)), (2e4, Some(4)));
}

#[test]
fn keys_that_files_leave_out_have_defaults() {
    for arch in ARCHITECTURES {
        let config = config(&Parts::smallest(arch).bytes()).unwrap();
        assert_eq!(config.arch.name(), arch);
        assert_eq!((config.head_dim, config.vocab, config.tied_head), (4, 6, true));
        assert_eq!((config.bos, config.eos), (Some(2), Some(1)));
        assert_eq!(config.attention_scale, 0.5);
    }
    let model = Parts::smallest("llama")
        .unset(".attention.head_count_kv")
        .unset(".attention.key_length")
        .unset(".attention.value_length")
        .unset(".rope.freq_base")
        .unset("tokenizer.ggml.tokens")
        .unset("tokenizer.ggml.bos_token_id")
        .set(".block_count", long(1))
        .tensor("blk.0.attn_k.weight", &[8, 8])
        .tensor("blk.0.attn_v.weight", &[8, 8]);
    let config = config(&model.bytes()).unwrap();
    assert_eq!((config.n_kv_heads, config.head_dim, config.rope_base), (2, 4, 1e4));
    assert_eq!((config.bos, config.rope_base_local, config.window), (None, 1e4, None));
}

/// Seeds for the fuzz target `gguf`, by name: every broken index, and models that are sound to the
/// index.
pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    let models = ARCHITECTURES.map(|arch| (format!("model {arch}"), Parts::smallest(arch).bytes()));
    let refused = of_model()
        .into_iter()
        .filter(|(what, ..)| ["bias of attention", "epsilon NaN"].contains(what));
    let broken = of_index().into_iter().chain(refused);
    broken.map(|(what, (bytes, _), _)| (what.to_owned(), bytes)).chain(models).collect()
}
