//! The tensors of an architecture: names in GGUF, which the rest of this crate uses, names in
//! Hugging Face's files, and dimensions.

use super::config::{Arch, Config};

/// Size of a dimension, given in words.
fn size(c: &Config, words: &str) -> u64 {
    // Each factor came from an u32, so the products fit.
    let size = match words {
        "hidden" => c.hidden,
        "ffn" => c.ffn,
        "vocab" => c.vocab,
        "head_dim" => c.head_dim,
        "head_dim / 2" => c.head_dim / 2,
        "n_heads · head_dim" => c.n_heads * c.head_dim,
        "n_kv_heads · head_dim" => c.n_kv_heads * c.head_dim,
        _ => unreachable!("the tables have no other words"),
    };
    size as u64
}

/// Returns true for models that have a tensor.
type Has = fn(&Config) -> bool;

const ALL: Has = |_| true;
const BIASED: Has = |c| c.qkv_bias;
const NORMED_HEADS: Has = |c| c.qk_norm;
const POST_NORMS: Has = |c| c.post_norms;

/// A tensor's name in GGUF, in the files of Llama and Qwen, and in Gemma's; its dimensions, row
/// length first. Names that do not end in `.bias` go on with `.weight`.
type Part = (&'static str, [&'static str; 2], &'static str, Has);

const EMBEDDING: &str = "embed_tokens";
/// The head, which lies beside the model where it is stored.
const HEAD: &str = "output";
const QUERIES: &str = "hidden, n_heads · head_dim";
const KEYS: &str = "hidden, n_kv_heads · head_dim";

/// Tensors of the whole model. Other formats compute the rope factors.
const WHOLE: [Part; 4] = [
    ("token_embd", [EMBEDDING; 2], "hidden, vocab", ALL),
    ("output_norm", ["norm"; 2], "hidden", ALL),
    (HEAD, [""; 2], "hidden, vocab", |c| !c.tied_head),
    ("rope_freqs", [""; 2], "head_dim / 2", |c| c.rope_freqs),
];

/// Tensors of a layer.
#[rustfmt::skip]
const LAYER: [Part; 16] = [
    ("attn_norm", ["input_layernorm"; 2], "hidden", ALL),
    ("attn_q", ["self_attn.q_proj"; 2], QUERIES, ALL),
    ("attn_k", ["self_attn.k_proj"; 2], KEYS, ALL),
    ("attn_v", ["self_attn.v_proj"; 2], KEYS, ALL),
    ("attn_q.bias", ["self_attn.q_proj.bias", ""], "n_heads · head_dim", BIASED),
    ("attn_k.bias", ["self_attn.k_proj.bias", ""], "n_kv_heads · head_dim", BIASED),
    ("attn_v.bias", ["self_attn.v_proj.bias", ""], "n_kv_heads · head_dim", BIASED),
    ("attn_output", ["self_attn.o_proj"; 2], "n_heads · head_dim, hidden", ALL),
    ("attn_q_norm", ["self_attn.q_norm"; 2], "head_dim", NORMED_HEADS),
    ("attn_k_norm", ["self_attn.k_norm"; 2], "head_dim", NORMED_HEADS),
    ("post_attention_norm", ["", "post_attention_layernorm"], "hidden", POST_NORMS),
    ("ffn_norm", ["post_attention_layernorm", "pre_feedforward_layernorm"], "hidden", ALL),
    ("ffn_gate", ["mlp.gate_proj"; 2], "hidden, ffn", ALL),
    ("ffn_up", ["mlp.up_proj"; 2], "hidden, ffn", ALL),
    ("ffn_down", ["mlp.down_proj"; 2], "ffn, hidden", ALL),
    ("post_ffw_norm", ["", "post_feedforward_layernorm"], "hidden", POST_NORMS),
];

/// The tensors of a model under GGUF's names, with their dimensions and those in words.
pub(crate) fn expected(c: &Config) -> impl Iterator<Item = (String, Vec<u64>, &'static str)> {
    let whole = WHOLE.iter().map(|part| (String::new(), part));
    let layers = (0..c.n_layers)
        .flat_map(|layer| LAYER.iter().map(move |part| (format!("blk.{layer}."), part)));
    whole.chain(layers).filter(|(_, part)| part.3(c)).map(|(at, (name, _, words, _))| {
        let dims = words.split(", ").map(|dim| size(c, dim)).collect();
        (format!("{at}{}", whole_name(name)), dims, *words)
    })
}

/// The name of a tensor from one in the tables.
fn whole_name(part: &str) -> String {
    format!("{part}{}", if part.ends_with(".bias") { "" } else { ".weight" })
}

/// The name in the tables of a tensor.
fn part_name(tensor: &str) -> Option<&str> {
    let is_bias = tensor.ends_with(".bias");
    if is_bias { Some(tensor) } else { tensor.strip_suffix(".weight") }
}

/// Prefixes of the text model's tensors and of its head: alone, or inside a model of text and
/// images.
const ROOTS: [[&str; 2]; 3] = [
    ["model.", "lm_head."],
    ["language_model.model.", "language_model.lm_head."],
    ["model.language_model.", "lm_head."],
];

/// Tensor names of one checkpoint in Hugging Face's format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    arch: Arch,
    model: &'static str,
    head: &'static str,
}

impl Names {
    /// The naming of a checkpoint of these tensors; the first if none fits, so that missing tensors
    /// have a name.
    pub(crate) fn of<'a>(arch: Arch, tensors: impl Iterator<Item = &'a str>) -> Self {
        let end = format!("{EMBEDDING}.weight");
        let roots: Vec<&str> = tensors.filter_map(|name| name.strip_suffix(&end)).collect();
        let found = ROOTS.into_iter().find(|[model, _]| roots.contains(model));
        let [model, head] = found.unwrap_or(ROOTS[0]);
        Self { arch, model, head }
    }

    /// GGUF's names and the stored ones of some tensors.
    fn pairs(self, parts: &'static [Part]) -> impl Iterator<Item = (&'static str, &'static str)> {
        let column = usize::from(self.arch == Arch::Gemma3);
        let pairs = parts.iter().map(move |(gguf, stored, ..)| (*gguf, stored[column]));
        pairs.filter(|(_, stored)| !stored.is_empty())
    }

    /// GGUF's name of a stored tensor, where it has one.
    pub(crate) fn to_gguf(self, stored: &str) -> Option<String> {
        if stored.strip_suffix("weight") == Some(self.head) {
            return Some(format!("{HEAD}.weight"));
        }
        let name = part_name(stored.strip_prefix(self.model)?)?;
        let find = |parts, name: &str| self.pairs(parts).find(|(_, stored)| *stored == name);
        let Some((layer, part)) = name.strip_prefix("layers.").and_then(|n| n.split_once('.'))
        else {
            return find(&WHOLE, name).map(|(gguf, _)| whole_name(gguf));
        };
        // `007` would be a second name of layer 7.
        layer.parse::<u32>().ok().filter(|n| n.to_string() == layer)?;
        find(&LAYER, part).map(|(gguf, _)| format!("blk.{layer}.{}", whole_name(gguf)))
    }

    /// The stored name of one of GGUF's; the name itself if it is none.
    pub(crate) fn stored(self, gguf: &str) -> String {
        let Self { model, head, .. } = self;
        let find = |parts, name: &str| self.pairs(parts).find(|(gguf, _)| *gguf == name);
        let of_part = || {
            let name = part_name(gguf)?;
            if name == HEAD {
                return Some(format!("{head}weight"));
            }
            let Some((layer, part)) = name.strip_prefix("blk.").and_then(|n| n.split_once('.'))
            else {
                let stored = find(&WHOLE, name).map(|(_, stored)| whole_name(stored));
                return stored.map(|stored| format!("{model}{stored}"));
            };
            let stored = find(&LAYER, part).map(|(_, stored)| whole_name(stored));
            stored.map(|stored| format!("{model}layers.{layer}.{stored}"))
        };
        of_part().unwrap_or_else(|| gguf.to_owned())
    }

    /// Returns true for a tensor that takes no part in decoding text: a buffer that is computed
    /// anew, or a part of the image model.
    pub(crate) fn is_aside(self, stored: &str) -> bool {
        let images = ["vision_tower.", "multi_modal_projector."];
        let beside = |name: &str| images.iter().any(|part| name.starts_with(part));
        stored.ends_with(".rotary_emb.inv_freq")
            || self.model != ROOTS[0][0]
                && (beside(stored) || stored.strip_prefix("model.").is_some_and(beside))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for arch in Arch::ALL {
            for root in ROOTS {
                let embedding = format!("{}embed_tokens.weight", root[0]);
                let names = Names::of(arch, [embedding.as_str()].into_iter());
                let layers =
                    names.pairs(&LAYER).map(|(part, _)| format!("blk.12.{}", whole_name(part)));
                let others = ["output.weight", "token_embd.weight", "output_norm.weight"];
                for gguf in layers.chain(others.map(str::to_owned)) {
                    let stored = names.stored(&gguf);
                    assert_eq!(names.to_gguf(&stored).as_deref(), Some(gguf.as_str()), "{stored}");
                }
            }
        }
    }

    #[test]
    fn other_names_have_none() {
        let names = Names::of(Arch::Llama, std::iter::empty());
        for name in [
            "blk.0.attn_q.weight",
            "model.layers.007.mlp.up_proj.weight",
            "model.layers.+7.mlp.up_proj.weight",
            "model.layers.0.self_attn.o_proj.bias",
            "model.layers.0.pre_feedforward_layernorm.weight",
        ] {
            assert_eq!(names.to_gguf(name), None, "{name}");
        }
    }
}
