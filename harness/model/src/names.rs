//! Names of tensors: GGUF's, which the rest of this crate uses, and those of Hugging Face.

use super::config::Arch;

/// Parts of a layer that all architectures have, GGUF's name first.
const COMMON: [(&str, &str); 10] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
/// The norms between attention and feed-forward. Gemma's of the same name stands elsewhere.
const PRE_NORM: [(&str, &str); 1] = [("ffn_norm", "post_attention_layernorm")];
const POST_NORMS: [(&str, &str); 3] = [
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Prefixes of the text model's tensors: alone, or inside a model of text and images.
const ROOTS: [Root; 3] = [
    Root { model: "model.", head: "lm_head." },
    Root { model: "language_model.model.", head: "language_model.lm_head." },
    Root { model: "model.language_model.", head: "lm_head." },
];

#[derive(Clone, Copy, Debug)]
struct Root {
    model: &'static str,
    head: &'static str,
}

/// Tensor names of one checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    arch: Arch,
    root: Root,
}

impl Names {
    /// The naming of a checkpoint of these tensors; the first if none fits, so that missing tensors
    /// have a name.
    pub(crate) fn of<'a>(arch: Arch, tensors: impl Iterator<Item = &'a str>) -> Self {
        let ends = ".embed_tokens.weight";
        let mut roots: Vec<&str> = tensors.filter_map(|name| name.strip_suffix(ends)).collect();
        roots.sort_unstable();
        let has = |root: &Root| roots.contains(&root.model.trim_end_matches('.'));
        let root = ROOTS.into_iter().find(has).unwrap_or(ROOTS[0]);
        Self { arch, root }
    }

    fn parts(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let norms: &[_] = match self.arch {
            Arch::Gemma3 => &POST_NORMS,
            Arch::Llama | Arch::Qwen3 => &PRE_NORM,
        };
        COMMON.iter().chain(norms)
    }

    /// GGUF's name of a stored tensor, where it has one.
    pub(crate) fn to_gguf(self, stored: &str) -> Option<String> {
        if stored.strip_prefix(self.root.head) == Some("weight") {
            return Some("output.weight".to_owned());
        }
        let name = stored.strip_prefix(self.root.model)?;
        match name {
            "embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
            "norm.weight" => return Some("output_norm.weight".to_owned()),
            _ => {}
        }
        let (layer, part) = name.strip_prefix("layers.")?.split_once('.')?;
        // `007` would be a second name of layer 7.
        layer.parse::<u32>().ok().filter(|n| n.to_string() == layer)?;
        let part = part.strip_suffix(".weight")?;
        let (gguf, _) = self.parts().find(|(_, stored)| *stored == part)?;
        Some(format!("blk.{layer}.{gguf}.weight"))
    }

    /// The stored name of one of GGUF's; the name itself if it is none.
    pub(crate) fn stored(self, gguf: &str) -> String {
        let Root { model, head } = self.root;
        match gguf {
            "output.weight" => return format!("{head}weight"),
            "token_embd.weight" => return format!("{model}embed_tokens.weight"),
            "output_norm.weight" => return format!("{model}norm.weight"),
            _ => {}
        }
        let of_layer = || {
            let (layer, part) = gguf.strip_prefix("blk.")?.split_once('.')?;
            let part = part.strip_suffix(".weight")?;
            let (_, stored) = self.parts().find(|(gguf, _)| *gguf == part)?;
            Some(format!("{model}layers.{layer}.{stored}.weight"))
        };
        of_layer().unwrap_or_else(|| gguf.to_owned())
    }

    /// Returns true for a tensor that takes no part in decoding text: a buffer that is computed
    /// anew, or a part of the image model.
    pub(crate) fn is_aside(self, stored: &str) -> bool {
        let images = ["vision_tower.", "multi_modal_projector."];
        let beside = |name: &str| images.iter().any(|part| name.starts_with(part));
        stored.ends_with(".rotary_emb.inv_freq")
            || self.root.model != ROOTS[0].model
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
                let embedding = format!("{}embed_tokens.weight", root.model);
                let names = Names::of(arch, [embedding.as_str()].into_iter());
                let parts: Vec<_> = names.parts().map(|(part, _)| *part).collect();
                let layers = parts.iter().map(|part| format!("blk.12.{part}.weight"));
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
            "model.layers.0.self_attn.q_proj.bias",
            "model.layers.0.pre_feedforward_layernorm.weight",
        ] {
            assert_eq!(names.to_gguf(name), None, "{name}");
        }
    }
}
