//! The operations of a chunk of a prompt: like a decode step over the rows of many tokens, up to
//! the last layer. The rest (last norm, head, choice) is a decode step's, for the last token alone.

use lathe_kernels::attention_prefill::AttentionPrefill;
use lathe_kernels::chunk_end::ChunkEnd;
use lathe_kernels::kv_window::KvWindow;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::{KvVectors, QueryRow, TokensOf, WindowMove};

use super::step::{Lister, Node, Vectors, at};
use crate::load::LayerWeights;
use lathe_device::plan::layout::KvOrder;
use lathe_device::plan::recording::{TensorId, TensorInit};

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
        let v = Vectors { rows: size, in_chunk: true, ..v };
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

    pub(super) fn chunk_attention(&mut self, layer: usize, w: &LayerWeights, v: &Vectors) {
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
            window_move: WindowMove::ToRows,
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
            let window = KvWindow { window_move: WindowMove::ToRing, ..window };
            self.op(at(Some(layer), "kv_window"), kernel, &window, &moved);
        }
    }
}
