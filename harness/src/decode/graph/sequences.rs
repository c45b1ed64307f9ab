//! The operations of a step of several sequences: each is a token further after it. All stand at
//! one position, so the rows of a matrix meet all of them while they are read once.

use lathe_kernels::argmax::Argmax;
use lathe_kernels::attention_decode::AttentionDecode;
use lathe_kernels::gemv::Gemv;
use lathe_kernels::gemv_q::GemvQ;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::{Beta, TokensOf};

use super::step::{Lister, MatrixPart, Vector, Vectors};
use crate::decode::load::LayerWeights;
use crate::plan::recording::TensorId;
use crate::plan::weights::WeightRows;

impl Lister<'_> {
    /// A step after the rows of the tokens were gathered. Returns where its tail begins.
    pub(super) fn sequences(
        &mut self,
        v: &Vectors,
        norms: &[TensorId],
        tables: &[MatrixPart],
        logits: Vector,
    ) -> usize {
        let c = self.config;
        self.layers(v, norms);
        let tail = self.nodes.len();
        if !c.post_norms || c.n_layers == 0 {
            self.norm(None, "output_norm", v, norms[c.n_layers]);
        }
        let own = self.weights.head.as_ref().map(|rows| self.parts("output", rows));
        for (first, weights, rows) in own.as_deref().unwrap_or(tables) {
            let to = (logits, Beta::Zero);
            let after = c.vocab - first - rows.rows();
            let label = (None, "lm_head");
            self.vectors_product(label, (*weights, rows), (v.normed, v.rows), to, (*first, after));
        }
        let argmax = Argmax { n: c.vocab, sequences: v.rows };
        let bindings = [("logits", logits.id), ("tokens", v.tokens), ("state", v.state)];
        self.op(None, "argmax", &lathe_kernels::argmax::OPERATION, &argmax, &bindings);
        tail
    }

    /// A matrix times the vector of each sequence, `before` elements into each row of the output
    /// and `after` ones from its end.
    pub(super) fn vectors_product(
        &mut self,
        (layer, op): (Option<usize>, &'static str),
        (weights, rows): (TensorId, &WeightRows),
        (x, n_vectors): (Vector, usize),
        (y, beta): (Vector, Beta),
        (y_offset, y_after): (usize, usize),
    ) {
        let bindings = [("weights", weights), ("x", x.id), ("y", y.id)];
        let (k, weight, act_format) = (rows.k, rows.format, x.format);
        let (order, rows) = (rows.order, rows.rows());
        if weight.is_dense() {
            let gemv = Gemv { rows, k, weight, act_format, y_offset, y_after, n_vectors, beta };
            self.op(layer, op, &lathe_kernels::gemv::OPERATION, &gemv, &bindings);
        } else {
            let gemv =
                GemvQ { rows, k, weight, act_format, y_offset, y_after, n_vectors, order, beta };
            self.op(layer, op, &lathe_kernels::gemv_q::OPERATION, &gemv, &bindings);
        }
    }

    pub(super) fn sequences_attention(&mut self, layer: usize, w: &LayerWeights, v: &Vectors) {
        let (c, kv_format) = (self.config, self.options.kv);
        let cache = self.new_cache(layer);
        let heads = self.heads(layer, w, cache.capacity);
        let append = QkvRopeAppend { n_tokens: v.rows, tokens_of: TokensOf::Each, ..heads.append };
        let kv = [("state", v.state), ("k_cache", cache.k), ("v_cache", cache.v)];
        let token = [("qkv", v.qkv.id), ("rope", heads.rope), ("q", v.q.id)];
        let norms = [("q_norm", heads.q_norm), ("k_norm", heads.k_norm)];
        let bindings = [&kv[..], &token, &norms].concat();
        let kernel = &lathe_kernels::qkv_rope_append::OPERATION;
        self.op(Some(layer), "qkv_rope_append", kernel, &append, &bindings);
        let attention = AttentionDecode {
            q_per_kv: append.q_per_kv,
            // Sequences lie one after the other in queries, caches and output, as KV heads do: more
            // sequences are more heads.
            kv_heads: v.rows * c.n_kv_heads,
            head_dim: c.head_dim,
            kv_size: cache.capacity,
            kv_format,
            act_format: v.attended.format,
            scale: c.attention_scale,
        };
        let bindings = [&kv[..], &[("q", v.q.id), ("y", v.attended.id)]].concat();
        let kernel = &lathe_kernels::attention_decode::OPERATION;
        self.op(Some(layer), "attention", kernel, &attention, &bindings);
    }
}
