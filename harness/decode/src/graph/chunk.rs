//! The operations of a chunk of a prompt: like a decode step over the rows of many tokens, up to
//! the last layer. The rest (last norm, head, choice) is a decode step's, for the last token alone.

use lathe_kernels::attention_prefill::AttentionPrefill;
use lathe_kernels::chunk_end::ChunkEnd;
use lathe_kernels::kv_window::KvWindow;
use lathe_kernels::matmul::Matmul;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::{Beta, KvVectors, Packing, Params, QueryRow, TokensOf, WindowWay};

use super::step::{Lister, Node, To, Vector, Vectors, at, listed, matrix_name, vectors_product};
use crate::load::LayerWeights;
use lathe_device::plan::layout::KvOrder;
use lathe_device::plan::recording::{Label, TensorId, TensorInit};
use lathe_device::plan::weights::WeightRows;

/// The smallest chunk worth having: half a fragment of matrix units.
const LEAST: usize = 16;

/// Sizes of chunks, the largest first, each half of the one before.
pub(super) fn sizes(most: usize) -> Vec<usize> {
    let halves = |size: &usize| (*size > LEAST).then(|| (size / 2).max(LEAST));
    match most {
        0 => Vec::new(),
        _ => std::iter::successors(Some(most), halves).collect(),
    }
}

impl Lister<'_> {
    /// Operations of chunks of every size. `step` are the vectors of a decode step, `norms` the
    /// weights of each layer's first norm and of the last of all.
    pub(super) fn chunks(&mut self, step: &Vectors, norms: &[TensorId]) -> Vec<(usize, Vec<Node>)> {
        let sizes = sizes(self.chunk.most);
        sizes.into_iter().map(|size| (size, self.chunk(size, step, norms))).collect()
    }

    fn chunk(&mut self, size: usize, step: &Vectors, norms: &[TensorId]) -> Vec<Node> {
        let (c, chunks) = (self.config, self.chunk);
        // Rows for the largest chunk; smaller ones use the first of them.
        let v = self.vectors("chunk.", chunks.most, chunks.acts, TokensOf::One);
        let v = Vectors { rows: size, ..v };
        self.embed(&v);
        self.layers(&v, norms);
        // What the first operation after the last layer of a decode step reads.
        let (x, y) = match c.post_norms && c.n_layers > 0 {
            true => (v.normed, step.normed),
            false => (v.stream, step.stream),
        };
        let (n, n_tokens, x_format, act_format) = (c.hidden, size, x.format, y.format);
        let end = ChunkEnd { n, n_tokens, x_format, act_format };
        let bindings = [("state", v.state), ("x", x.id), ("y", y.id)];
        self.op(at(None, "chunk_end"), &lathe_kernels::chunk_end::OPERATION, &end, &bindings);
        std::mem::take(&mut self.nodes)
    }

    /// All layers over rows of one sequence or of several. Where branches are normed, the last
    /// one's residual also makes the head's input.
    pub(super) fn layers(&mut self, v: &Vectors, norms: &[TensorId]) {
        let c = self.config;
        for (i, w) in self.weights.layers.iter().enumerate() {
            // That of a later layer comes with the residual before it, if branches are normed.
            if i == 0 || !c.post_norms {
                let norm = self.norm(at(Some(i), "attn_norm"), v, norms[i]);
                self.nodes.push(Node::Op(norm));
            }
            self.row_products(v, at(Some(i), "qkv"), &w.qkv, v.normed, (v.qkv, Beta::Zero));
            match v.of {
                TokensOf::One => self.chunk_attention(i, w, v),
                TokensOf::Each => {
                    let cache = self.new_cache(i);
                    self.token_attention(i, w, v, cache);
                }
            }
            let (output, end) = (std::slice::from_ref(&w.attn_output), self.branch_end(v));
            self.row_products(v, at(Some(i), "attn_output"), output, v.attended, end);
            let ffn_norm = self.values(format!("l{i}.ffn_norm"), &w.ffn_norm);
            match c.post_norms {
                true => {
                    let post = ("post_attention_norm", w.post_attention_norm.as_ref());
                    let left = self.residual(i, "attn_residual", v, post, ffn_norm);
                    self.apart(left);
                }
                false => {
                    let norm = self.norm(at(Some(i), "ffn_norm"), v, ffn_norm);
                    self.nodes.push(Node::Op(norm));
                }
            }
            let gate_up = (v.gate_up, Beta::Zero);
            self.row_products(v, at(Some(i), "ffn_gate_up"), &w.gate_up, v.normed, gate_up);
            self.glu(i, v);
            let down = std::slice::from_ref(&w.ffn_down);
            self.row_products(v, at(Some(i), "ffn_down"), down, v.gated, end);
            let post = ("post_ffw_norm", w.post_ffw_norm.as_ref());
            let left = self.residual(i, "ffn_residual", v, post, norms[i + 1]);
            self.apart(left);
        }
    }

    /// Rows times matrices that share an output: one product each, at successive offsets of the
    /// output's rows, or added to their values.
    fn row_products(
        &mut self,
        v: &Vectors,
        label: Label,
        matrices: &[WeightRows],
        x: Vector,
        (y, beta): To,
    ) {
        let all: usize = matrices.iter().map(WeightRows::rows).sum();
        let mut y_offset = 0;
        for (i, rows) in matrices.iter().enumerate() {
            let weights = self.matrix(matrix_name(label, i), rows);
            let y_after = all - y_offset - rows.rows();
            let product = match v.of {
                TokensOf::Each => {
                    let (x, offsets) = ((x, v.rows), (y_offset, y_after));
                    vectors_product(label, (weights, rows), x, (y, beta), offsets)
                }
                TokensOf::One => {
                    let product = Matmul {
                        n_tokens: v.rows,
                        rows: rows.rows(),
                        k: rows.k,
                        weight: rows.format,
                        packing: Packing::Blocks,
                        act_format: x.format,
                        y_offset,
                        y_after,
                        beta,
                    };
                    let bindings = [("weights", weights), ("x", x.id), ("y", y.id)];
                    let kernel = &lathe_kernels::matmul::OPERATION;
                    // The decode step decides how the matrix is packed.
                    listed(label, kernel, &product, &bindings)
                        .with_shape(move |packing| Matmul { packing, ..product }.shape())
                }
            };
            self.nodes.push(Node::Op(product));
            y_offset += rows.rows();
        }
    }

    fn chunk_attention(&mut self, layer: usize, w: &LayerWeights, v: &Vectors) {
        let (c, options, n_tokens) = (self.config, self.options, v.rows);
        let cache = self.caches[layer];
        // A ring has room for what the next token attends to, not for what all of a chunk do.
        let before = if cache.sliding { cache.capacity } else { 0 };
        let ring = [("k_cache", cache.k), ("v_cache", cache.v)];
        let (kv_size, [k, v_rows]) = match cache.sliding {
            false => (cache.capacity, [cache.k, cache.v]),
            true => {
                let len = c.n_kv_heads * (before + self.chunk.most) * c.head_dim;
                let vectors = KvVectors { format: options.kv, head_dim: c.head_dim };
                let content = TensorInit::Kv { len, vectors, order: KvOrder::Heads };
                let rows = ["k_rows", "v_rows"]
                    .map(|name| self.tensor(format!("chunk.{name}.{before}"), content.clone()));
                (before + n_tokens, rows)
            }
        };
        let window = KvWindow {
            way: WindowWay::ToRows,
            n_tokens,
            kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            kv_size: cache.capacity,
            kv_format: options.kv,
        };
        let rows = [("state", v.state), ("k_rows", k), ("v_rows", v_rows)];
        let kernel = &lathe_kernels::kv_window::OPERATION;
        let moved = [&rows[..], &ring].concat();
        if cache.sliding {
            self.op(at(Some(layer), "kv_window"), kernel, &window, &moved);
        }
        let heads = self.heads(layer, w, kv_size);
        let append = QkvRopeAppend { n_tokens, before, ..heads.append };
        let kv = [("state", v.state), ("k_cache", k), ("v_cache", v_rows)];
        let token = [("qkv", v.qkv.id), ("rope", heads.rope), ("q", v.q.id)];
        let norms = [("q_norm", heads.q_norm), ("k_norm", heads.k_norm)];
        let bindings = [&kv[..], &token, &norms].concat();
        let append_kernel = &lathe_kernels::qkv_rope_append::OPERATION;
        self.op(at(Some(layer), "qkv_rope_append"), append_kernel, &append, &bindings);
        let attention = AttentionPrefill {
            n_tokens,
            q_per_kv: append.q_per_kv,
            kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            kv_size,
            window: before,
            q_row: QueryRow::Q,
            kv_format: options.kv,
            act_format: v.attended.format,
            scale: c.attention_scale,
            before,
        };
        let bindings = [&kv[..], &[("q", v.q.id), ("y", v.attended.id)]].concat();
        let attention_kernel = &lathe_kernels::attention_prefill::OPERATION;
        self.op(at(Some(layer), "attention"), attention_kernel, &attention, &bindings);
        if cache.sliding {
            let window = KvWindow { way: WindowWay::ToRing, ..window };
            self.op(at(Some(layer), "kv_window"), kernel, &window, &moved);
        }
    }
}
