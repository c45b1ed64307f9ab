//! The operations of a layer, of a decode step and of a chunk of a prompt. [`super::chunk`] has the
//! attention of a chunk.

use std::sync::Arc;

use lathe_kernels::attention_append::AttentionAppend;
use lathe_kernels::attention_decode::AttentionDecode;
use lathe_kernels::fused_ffn::FusedFfn;
use lathe_kernels::glu::Glu;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::residual_norm_ffn::ResidualNormFfn;
use lathe_kernels::residual_norm_gemv::ResidualNormGemv;
use lathe_kernels::residual_rms_norm::ResidualRmsNorm;
use lathe_kernels::{
    Beta, FloatFormat, KvVectors, Norm, NormOffset, QkvBias, RopeFactors, TokensOf,
};

use super::KvCache;
use super::step::{Input, Listed, Lister, Node, To, Vector, Vectors, at, listed, matrix_name};
use crate::load::LayerWeights;
use lathe_device::plan::layout::KvOrder;
use lathe_device::plan::recording::{Label, TensorId, TensorInit};
use lathe_model::RopeScaling;

/// A norm of the stream that the next matrix may make itself.
struct Left {
    /// The norm as an operation of its own, whose output that matrix then reads.
    apart: Listed,
    /// The weight of the norm of a branch that joins the stream first, if one does.
    post: Option<TensorId>,
}

/// Operations on a layer's heads before attention.
pub(super) struct HeadsOf {
    pub(super) append: QkvRopeAppend,
    pub(super) rope: TensorId,
    /// Norm weights of queries, those of keys, and the bias; ones without a norm, nothing without a
    /// bias.
    weights: [Arc<[f32]>; 3],
    pub(super) q_norm: TensorId,
    pub(super) k_norm: TensorId,
}

pub(super) fn norm(wanted: bool) -> Norm {
    if wanted { Norm::Rms } else { Norm::None }
}

impl Lister<'_> {
    /// Input of the first matrix of a branch.
    fn branch_input(&self, v: &Vectors, weight: TensorId) -> Input {
        match self.config.post_norms || !v.is_one() {
            true => Input::Vector(v.normed),
            false => Input::Norm { stream: v.stream, weight },
        }
    }

    /// Destination of the matrix that ends a branch.
    fn branch_end(&self, v: &Vectors) -> To {
        match self.config.post_norms {
            true => (v.branch, Beta::Zero),
            false => (v.stream, Beta::One),
        }
    }

    /// Lists a norm that no matrix takes over, as an operation of its own.
    fn apart(&mut self, left: Option<Left>) {
        self.nodes.extend(left.map(|left| Node::from(left.apart)));
    }

    /// A branch normed, added to the stream, and the stream normed for the next matrix, which may
    /// take that over; nothing where branches are not normed.
    fn residual(
        &mut self,
        layer: usize,
        op: &'static str,
        v: &Vectors,
        post: (&str, Option<&Arc<[f32]>>),
        next: TensorId,
    ) -> Option<Left> {
        let (name, Some(post)) = post else { return None };
        let post = self.values(format!("l{layer}.{name}"), post);
        let residual = ResidualRmsNorm {
            n: self.config.hidden,
            eps: self.config.rms_eps,
            weight_offset: NormOffset::Standard,
            post: Norm::Rms,
            act_format: v.normed.format,
            rows: v.rows,
        };
        let bindings = [
            ("x", v.stream.id),
            ("delta", v.branch.id),
            ("y", v.normed.id),
            ("post_weight", post),
            ("next_weight", next),
        ];
        let kernel = &lathe_kernels::residual_rms_norm::OPERATION;
        let apart = listed(at(Some(layer), op), kernel, &residual, &bindings);
        Some(Left { apart, post: Some(post) })
    }

    /// Buffer for a residual stream that an operation writes anew.
    pub(super) fn next_stream(&mut self) -> TensorId {
        self.vector("next_x", self.config.hidden, FloatFormat::F32).id
    }

    /// Bindings of a matrix that adds a branch to the stream and norms the sum.
    fn joined(
        &mut self,
        v: &Vectors,
        (weights, y): (TensorId, Vector),
        post: TensorId,
        norm: TensorId,
    ) -> [(&'static str, TensorId); 7] {
        [
            ("weights", weights),
            ("x", v.stream.id),
            ("delta", v.branch.id),
            ("post_weight", post),
            ("norm_weight", norm),
            ("y", y.id),
            ("next_x", self.next_stream()),
        ]
    }

    /// A layer's cache: of several sequences one after the other.
    fn new_cache(&mut self, layer: usize) -> KvCache {
        let (c, options) = (self.config, self.options);
        let window = c.layer_window(layer);
        let capacity = window.map_or(options.context, |w| w.min(options.context)).max(1);
        let len = options.sequences * c.n_kv_heads * capacity * c.head_dim;
        let vectors = KvVectors { format: options.kv, head_dim: c.head_dim };
        let content = TensorInit::Kv { len, vectors, order: KvOrder::Heads };
        let cache = KvCache {
            k: self.tensor(format!("l{layer}.k_cache"), content.clone()),
            v: self.tensor(format!("l{layer}.v_cache"), content),
            capacity,
            sliding: window.is_some_and(|w| w < options.context),
        };
        self.caches.push(cache);
        cache
    }

    /// All layers. The rows of a matrix meet all tokens while they are read once. Where branches are
    /// normed, the last one's residual also makes the head's input.
    pub(super) fn layers(&mut self, v: &Vectors, norms: &[TensorId]) {
        let mut left = None;
        for (i, w) in self.weights.layers.iter().enumerate() {
            let cache = if v.in_chunk { self.caches[i] } else { self.new_cache(i) };
            let first = left.or_else(|| self.first_norm(at(Some(i), "attn_norm"), v, norms[i]));
            self.qkv(i, w, v, norms[i], first);
            match v.in_chunk {
                true => self.chunk_attention(i, w, v),
                false => self.token_attention(i, w, v, cache),
            }
            let (output, end) = (std::slice::from_ref(&w.attn_output), self.branch_end(v));
            let attended = Input::Vector(v.attended);
            self.products(at(Some(i), "attn_output"), output, v, attended, end);
            let ffn_norm = self.values(format!("l{i}.ffn_norm"), &w.ffn_norm);
            let post = ("post_attention_norm", w.post_attention_norm.as_ref());
            let joined = self.residual(i, "attn_residual", v, post, ffn_norm);
            let label = at(Some(i), "ffn_norm");
            let first = joined.or_else(|| self.first_norm(label, v, ffn_norm));
            self.gate_up(i, w, v, ffn_norm, first);
            let down = std::slice::from_ref(&w.ffn_down);
            self.products(at(Some(i), "ffn_down"), down, v, Input::Vector(v.gated), end);
            let post = ("post_ffw_norm", w.post_ffw_norm.as_ref());
            left = self.residual(i, "ffn_residual", v, post, norms[i + 1]);
        }
        self.apart(left);
    }

    /// The norm of the stream before a branch whose matrix reads its output: not one token's where
    /// branches are not normed, since that matrix norms the stream itself.
    fn first_norm(&self, label: Label, v: &Vectors, weight: TensorId) -> Option<Left> {
        let is_read = self.config.post_norms || !v.is_one();
        is_read.then(|| Left { apart: self.norm(label, v, weight), post: None })
    }

    /// QKV, with the norm of the stream that is left to it, if one is.
    fn qkv(
        &mut self,
        layer: usize,
        w: &LayerWeights,
        v: &Vectors,
        attn_norm: TensorId,
        left: Option<Left>,
    ) {
        let (label, to) = (at(Some(layer), "qkv"), (v.qkv, Beta::Zero));
        let input = self.branch_input(v, attn_norm);
        let (left, rows) = match (left, &w.qkv[..]) {
            (Some(left), [rows]) if v.is_one() => (left, rows),
            (left, matrices) => {
                self.apart(left);
                self.products(label, matrices, v, input, to);
                return;
            }
        };
        let weights = self.matrix(matrix_name(label, 0), rows);
        let one = match left.post {
            None => {
                let input = Input::Norm { stream: v.stream, weight: attn_norm };
                self.product(label, (weights, rows), v, input, (to, 0, 0))
            }
            Some(post) => {
                let fused = ResidualNormGemv {
                    rows: rows.rows(),
                    k: rows.k,
                    weight: rows.format,
                    y_offset: 0,
                    eps: self.config.rms_eps,
                };
                let bindings = self.joined(v, (weights, v.qkv), post, attn_norm);
                let kernel = &lathe_kernels::residual_norm_gemv::OPERATION;
                listed(label, kernel, &fused, &bindings)
            }
        };
        let product = self.product(label, (weights, rows), v, input, (to, 0, 0));
        self.nodes.push(Node { op: one, apart: vec![left.apart, product] });
    }

    /// Lists the operations from the product of QKV to the output of attention, for a token of each
    /// sequence.
    fn token_attention(&mut self, layer: usize, w: &LayerWeights, v: &Vectors, cache: KvCache) {
        let (c, options) = (self.config, self.options);
        let heads = self.heads(layer, w, cache.capacity);
        let fused = AttentionAppend {
            q_per_kv: heads.append.q_per_kv,
            kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            qk_norm: heads.append.qk_norm,
            qkv_bias: heads.append.qkv_bias,
            rope_style: c.rope_style,
            eps: c.rms_eps,
            rope_base: heads.append.rope_base,
            rope_factors: heads.append.rope_factors,
            kv_size: cache.capacity,
            kv_format: options.kv,
            act_format: v.attended.format,
            scale: c.attention_scale,
            sequences: v.rows,
        };
        let append = QkvRopeAppend { n_tokens: v.rows, tokens_of: v.of, ..heads.append };
        let both = heads.weights.concat();
        let both = self.values(format!("l{layer}.qk_norm"), &both.into());
        let kv = [("state", v.state), ("k_cache", cache.k), ("v_cache", cache.v)];
        let token = [("qkv", v.qkv.id), ("rope", heads.rope)];
        let norms = [("q_norm", heads.q_norm), ("k_norm", heads.k_norm), ("q", v.q.id)];
        let one = listed(
            at(Some(layer), "attention"),
            &lathe_kernels::attention_append::OPERATION,
            &fused,
            &[&kv[..], &token, &[("qk_norm", both), ("y", v.attended.id)]].concat(),
        );
        let apart = listed(
            at(Some(layer), "qkv_rope_append"),
            &lathe_kernels::qkv_rope_append::OPERATION,
            &append,
            &[&kv[..], &token, &norms].concat(),
        );
        let decode = listed(
            at(Some(layer), "attention"),
            &lathe_kernels::attention_decode::OPERATION,
            &AttentionDecode {
                q_per_kv: fused.q_per_kv,
                // Sequences lie one after the other in queries, caches and output, as KV heads
                // do: more sequences are more heads.
                kv_heads: v.rows * fused.kv_heads,
                head_dim: fused.head_dim,
                kv_size: cache.capacity,
                kv_format: options.kv,
                act_format: fused.act_format,
                scale: fused.scale,
            },
            &[&kv[..], &[("q", v.q.id), ("y", v.attended.id)]].concat(),
        );
        self.nodes.push(Node { op: one, apart: vec![apart, decode] });
    }

    /// Describes a layer's operations on the heads of a token before attention, with a cache of
    /// `kv_size` slots.
    pub(super) fn heads(&mut self, layer: usize, w: &LayerWeights, kv_size: usize) -> HeadsOf {
        let c = self.config;
        let rope_base = c.layer_rope_base(layer);
        let ones: Arc<[f32]> = vec![1.0; c.head_dim].into();
        let [q_norm, k_norm] = w.qk_norm.clone().unwrap_or_else(|| [Arc::clone(&ones), ones]);
        let bias = w.qkv_bias.clone().unwrap_or_default();
        let with_bias = [&q_norm[..], &bias].concat();
        let append = QkvRopeAppend {
            q_per_kv: c.n_heads / c.n_kv_heads,
            kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            qk_norm: norm(c.qk_norm),
            qkv_bias: if c.qkv_bias { QkvBias::Added } else { QkvBias::None },
            rope_style: c.rope_style,
            eps: c.rms_eps,
            rope_base,
            rope_factors: match (c.layer_rope_scaling(layer), &self.weights.rope_freqs) {
                (Some(RopeScaling::Yarn(_)), _) => RopeFactors::Yarn,
                (Some(RopeScaling::Llama3(_)), _) | (_, Some(_)) => RopeFactors::Llama3,
                (Some(RopeScaling::Linear { .. }), None) => RopeFactors::Linear,
                (None, None) => RopeFactors::None,
            },
            kv_size,
            kv_format: self.options.kv,
            n_tokens: 1,
            tokens_of: TokensOf::One,
            before: 0,
        };
        HeadsOf {
            append,
            rope: self.rope(layer),
            q_norm: self.values(format!("l{layer}.q_norm"), &with_bias.into()),
            k_norm: self.values(format!("l{layer}.k_norm"), &k_norm),
            weights: [q_norm, k_norm, bias],
        }
    }

    /// Gate and up with their activation: of one token and one matrix in one operation, which may
    /// also take the norm of the stream that is left to it.
    fn gate_up(
        &mut self,
        layer: usize,
        w: &LayerWeights,
        v: &Vectors,
        ffn_norm: TensorId,
        left: Option<Left>,
    ) {
        let label = at(Some(layer), "ffn_gate_up");
        let rows = match &w.gate_up[..] {
            [rows] if v.is_one() => rows,
            matrices => {
                self.apart(left);
                let input = self.branch_input(v, ffn_norm);
                self.products(label, matrices, v, input, (v.gate_up, Beta::Zero));
                self.glu(layer, v);
                return;
            }
        };
        let weights = self.matrix(matrix_name(label, 0), rows);
        let c = self.config;
        let (n, k, weight) = (c.ffn, c.hidden, rows.format);
        let (activation, act_format, eps) = (c.activation, v.gated.format, c.rms_eps);
        let input_norm = norm(!c.post_norms);
        let block = FusedFfn { n, k, weight, activation, act_format, input_norm, eps };
        let bindings = [
            ("weights", weights),
            // Read without a norm,
            ("x", v.normed.id),
            // and these with one.
            ("stream", v.stream.id),
            ("norm_weight", ffn_norm),
            ("y", v.gated.id),
        ];
        let block = listed(label, &lathe_kernels::fused_ffn::OPERATION, &block, &bindings);
        let (apart, post) = match left {
            Some(Left { apart, post: Some(post) }) => (apart, post),
            left => {
                self.apart(left);
                self.nodes.push(block.into());
                return;
            }
        };
        let joined = ResidualNormFfn { n, k, weight, activation, act_format, eps };
        let bindings = self.joined(v, (weights, v.gated), post, ffn_norm);
        let joined =
            listed(label, &lathe_kernels::residual_norm_ffn::OPERATION, &joined, &bindings);
        self.nodes.push(Node { op: joined, apart: vec![apart, block] });
    }

    /// Gate times up.
    fn glu(&mut self, layer: usize, v: &Vectors) {
        let glu = Glu {
            n: self.config.ffn,
            activation: self.config.activation,
            act_format: v.gated.format,
            rows: v.rows,
        };
        let bindings = [("gate_up", v.gate_up.id), ("y", v.gated.id)];
        self.op(at(Some(layer), "ffn_act"), &lathe_kernels::glu::OPERATION, &glu, &bindings);
    }
}
