//! First pass: the operations of a decode step and the tensors between them, before any variant is
//! chosen. [`super::layer`] has the operations of a layer, [`super::chunk`] those of a chunk of a
//! prompt.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use lathe_kernels::argmax::Argmax;
use lathe_kernels::embed::Embed;
use lathe_kernels::gemv::Gemv;
use lathe_kernels::gemv_q::GemvQ;
use lathe_kernels::matmul::Matmul;
use lathe_kernels::norm_gemv::NormGemv;
use lathe_kernels::rms_norm::RmsNorm;
use lathe_kernels::{
    Beta, Declaration, FloatFormat, NormOffset, Packing, Params, RopeSpec, Shape, TablePart,
    TokensOf,
};

use super::KvCache;
use crate::load::Weights;
use crate::options::{Chunks, DecodeOptions};
use crate::sampling::params;
use lathe_device::plan::recording::{Label, Tensor, TensorId, TensorInit};
use lathe_device::plan::weights::WeightRows;
use lathe_model::Config;

/// An operation of the step, and those that a fused one replaces: alternatives with the same result.
pub(super) struct Node {
    pub(super) op: Listed,
    pub(super) apart: Vec<Listed>,
}

impl From<Listed> for Node {
    fn from(op: Listed) -> Self {
        Self { op, apart: Vec::new() }
    }
}

/// An operation without a variant. Where its shape has a packing, that is the one in which others
/// read its matrix.
pub(super) struct Listed {
    pub(super) label: Label,
    pub(super) kernel: &'static str,
    pub(super) shape: Shape,
    pub(super) bindings: Vec<(&'static str, TensorId)>,
}

/// The parameter of kernels that read a matrix as others pack it.
const PACKING: &str = "PACKING";

impl Listed {
    /// Returns true if its parameters follow from the packing of its matrix, which others choose.
    pub(super) fn is_as_packed(&self) -> bool {
        self.shape.get(PACKING).is_some()
    }

    /// Makes it read its matrix in this packing.
    pub(super) fn pack(&mut self, packing: Packing) {
        let code = f64::from(packing.code());
        let packed = |(name, value)| (name, if name == PACKING { code } else { value });
        self.shape = Shape::new(self.shape.iter().map(packed));
    }
}

/// Operations of a decode step of one token and of chunks of a prompt, before variants are chosen.
pub(super) struct Steps {
    pub(super) tensors: Vec<Tensor>,
    /// Operations of a decode step.
    pub(super) nodes: Vec<Node>,
    /// The first of them that follow the last layer.
    pub(super) tail: usize,
    /// Operations of a chunk of each size.
    pub(super) chunks: Vec<(usize, Vec<Node>)>,
    pub(super) caches: Vec<KvCache>,
    /// Buffers of the residual stream: at the beginning of a step, and for an operation that writes
    /// it anew.
    pub(super) streams: [TensorId; 2],
}

/// A vector that operations pass on, or the rows of several tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector {
    pub(super) id: TensorId,
    pub(super) format: FloatFormat,
}

/// Some rows of a matrix that is too large for one binding: the first, and the rows.
pub(super) type MatrixPart = (usize, TensorId, WeightRows);

/// Input of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    /// A vector as it is.
    Vector(Vector),
    /// The norm of the residual stream, computed by the reader.
    Norm { stream: Vector, weight: TensorId },
}

/// Destination of a product: a vector of its own, or the residual stream.
pub(super) type To = (Vector, Beta);

pub(super) struct Lister<'a> {
    pub(super) config: &'a Config,
    pub(super) weights: &'a Weights,
    pub(super) options: &'a DecodeOptions,
    pub(super) chunk: Chunks,
    /// Bytes of the largest binding: larger matrices come in parts.
    binding_bytes: u64,
    tensors: Vec<Tensor>,
    by_name: HashMap<String, TensorId>,
    pub(super) nodes: Vec<Node>,
    pub(super) caches: Vec<KvCache>,
}

/// Vectors of a layer.
pub(super) struct Vectors {
    pub(super) state: TensorId,
    pub(super) tokens: TensorId,
    /// The residual stream. The choice of alternatives decides which of [`Steps::streams`] has it.
    pub(super) stream: Vector,
    pub(super) normed: Vector,
    pub(super) branch: Vector,
    pub(super) qkv: Vector,
    pub(super) q: Vector,
    pub(super) attended: Vector,
    pub(super) gate_up: Vector,
    pub(super) gated: Vector,
    /// Tokens whose vectors these are.
    pub(super) rows: usize,
    /// Sequences of these tokens.
    pub(super) of: TokensOf,
    /// The tokens are neighbours in a prompt.
    pub(super) in_chunk: bool,
}

impl Vectors {
    /// Returns true for one token, whose matrices may take over the norm of what they read.
    pub(super) fn is_one(&self) -> bool {
        self.of == TokensOf::One && !self.in_chunk
    }
}

/// Lists a decode step and the chunks of a prompt.
pub(super) fn list(
    config: &Config,
    weights: &Weights,
    options: &DecodeOptions,
    chunk: Chunks,
    binding_bytes: u64,
) -> Steps {
    Lister {
        config,
        weights,
        options,
        chunk,
        binding_bytes,
        tensors: Vec::new(),
        by_name: HashMap::new(),
        nodes: Vec::new(),
        caches: Vec::new(),
    }
    .list()
}

/// The label of an operation.
pub(super) fn at(layer: Option<usize>, op: &'static str) -> Label {
    Label { layer, op }
}

pub(super) fn listed<P: Params>(
    label: Label,
    kernel: &Declaration<P>,
    params: &P,
    bindings: &[(&'static str, TensorId)],
) -> Listed {
    Listed { label, kernel: kernel.name, shape: params.shape(), bindings: bindings.to_vec() }
}

/// The name of a matrix, or of a later one of several parts or matrices that make one product.
pub(super) fn matrix_name(name: impl fmt::Display, i: usize) -> String {
    if i == 0 { name.to_string() } else { format!("{name}.{i}") }
}

impl Lister<'_> {
    /// Positions that tensors have room for: a chunk may begin at the last one.
    fn positions(&self) -> usize {
        self.options.context + self.chunk.most
    }

    /// A tensor; one of the same name is the same.
    pub(super) fn tensor(&mut self, name: impl Into<String>, content: TensorInit) -> TensorId {
        let name = name.into();
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let id = TensorId(self.tensors.len());
        self.by_name.insert(name.clone(), id);
        self.tensors.push(Tensor { name, content });
        id
    }

    pub(super) fn vector(&mut self, name: &str, len: usize, format: FloatFormat) -> Vector {
        Vector { id: self.tensor(name, TensorInit::Activation { len, format }), format }
    }

    pub(super) fn values(&mut self, name: String, values: &Arc<[f32]>) -> TensorId {
        self.tensor(name, TensorInit::Values(Arc::clone(values)))
    }

    /// A matrix; how its rows are packed is decided with the variant that reads them.
    pub(super) fn matrix(&mut self, name: String, rows: &WeightRows) -> TensorId {
        self.tensor(name, TensorInit::Weights(rows.clone(), Packing::Blocks))
    }

    pub(super) fn op<P: Params>(
        &mut self,
        label: Label,
        kernel: &Declaration<P>,
        params: &P,
        bindings: &[(&'static str, TensorId)],
    ) {
        self.nodes.push(listed(label, kernel, params, bindings).into());
    }

    /// The rope table of a layer, one for all layers of the same base and scaling.
    pub(super) fn rope(&mut self, layer: usize) -> TensorId {
        let c = self.config;
        let (base, scaling) = (c.layer_rope_base(layer), c.layer_rope_scaling(layer));
        let stored = self.weights.rope_freqs.clone();
        let freq_factors = match scaling.map(|s| s.divisors(c.head_dim, f64::from(base))) {
            None => stored,
            Some(mut divisors) => {
                for (divisor, stored) in divisors.iter_mut().zip(stored.iter().flatten()) {
                    *divisor *= stored;
                }
                Some(divisors)
            }
        };
        let spec = RopeSpec {
            base,
            head_dim: c.head_dim,
            positions: self.positions(),
            freq_factors,
            amplitude: scaling.map_or(1.0, |s| s.amplitude()),
        };
        let scaled = if scaling.is_some() { ".scaled" } else { "" };
        self.tensor(format!("rope.{base}{scaled}"), TensorInit::Rope(spec))
    }

    /// One matrix times its input, from element `y_offset` of each row of the output on, `y_after`
    /// elements from its end.
    pub(super) fn product(
        &self,
        label: Label,
        (weights, matrix): (TensorId, &WeightRows),
        v: &Vectors,
        input: Input,
        ((y, beta), y_offset, y_after): (To, usize, usize),
    ) -> Listed {
        let (rows, k, weight, order) = (matrix.rows(), matrix.k, matrix.format, matrix.order);
        let x = match input {
            Input::Vector(x) => x,
            Input::Norm { stream, weight: norm } => {
                let (eps, weight_offset) = (self.config.rms_eps, NormOffset::Standard);
                let gemv = NormGemv { rows, k, weight, y_offset, eps, weight_offset };
                let bindings =
                    [("weights", weights), ("y", y.id), ("x", stream.id), ("norm_weight", norm)];
                return listed(label, &lathe_kernels::norm_gemv::OPERATION, &gemv, &bindings);
            }
        };
        let bindings = [("weights", weights), ("y", y.id), ("x", x.id)];
        let (n_tokens, act_format) = (v.rows, x.format);
        if v.in_chunk {
            // The decode step decides how the matrix is packed.
            let packing = Packing::Blocks;
            let product =
                Matmul { n_tokens, rows, k, weight, packing, act_format, y_offset, y_after, beta };
            return listed(label, &lathe_kernels::matmul::OPERATION, &product, &bindings);
        }
        // One vector has no next row to go on to.
        let (n_vectors, y_after) = (n_tokens, if v.is_one() { 0 } else { y_after });
        if weight.is_dense() {
            let gemv = Gemv { rows, k, weight, act_format, y_offset, y_after, n_vectors, beta };
            return listed(label, &lathe_kernels::gemv::OPERATION, &gemv, &bindings);
        }
        let gemv = GemvQ { rows, k, weight, act_format, y_offset, y_after, n_vectors, order, beta };
        listed(label, &lathe_kernels::gemv_q::OPERATION, &gemv, &bindings)
    }

    /// Matrices that share an output, times their input: one product each, at successive offsets of
    /// the output, or added to its values.
    pub(super) fn products(
        &mut self,
        label: Label,
        matrices: &[WeightRows],
        v: &Vectors,
        input: Input,
        to: To,
    ) {
        let all: usize = matrices.iter().map(WeightRows::rows).sum();
        let mut y_offset = 0;
        for (i, rows) in matrices.iter().enumerate() {
            let weights = self.matrix(matrix_name(label, i), rows);
            let to = (to, y_offset, all - y_offset - rows.rows());
            let product = self.product(label, (weights, rows), v, input, to);
            self.nodes.push(product.into());
            y_offset += rows.rows();
        }
    }

    fn list(mut self) -> Steps {
        let (c, options) = (self.config, self.options);
        let n = options.sequences;
        let of = if n > 1 { TokensOf::Each } else { TokensOf::One };
        let v = self.vectors("", n, options.acts, of);
        let logits = self.vector("logits", n * c.vocab, FloatFormat::F32);
        let streams = [v.stream.id, self.next_stream()];
        let tables = self.embed(&v);

        // Where branches are normed before they are added, the next matrix does that, adds, and
        // norms the stream on its way; or one dispatch does it for several matrices, and for the
        // head. Else the matrix that ends a branch adds to the stream, and the next one norms what
        // it reads.
        let layers = &self.weights.layers;
        let mut norms: Vec<TensorId> = layers
            .iter()
            .enumerate()
            .map(|(i, w)| self.values(format!("l{i}.attn_norm"), &w.attn_norm))
            .collect();
        norms.push(self.values("output_norm".into(), &self.weights.output_norm));
        let is_normed = c.post_norms && c.n_layers > 0;
        self.layers(&v, &norms);
        let tail = self.nodes.len();
        let head = match &self.weights.head {
            None => tables,
            Some(rows) => self.parts("output", rows),
        };
        let norm = norms[c.n_layers];
        let apart = (!is_normed).then(|| self.norm(at(None, "output_norm"), &v, norm));
        let (label, to) = (at(None, "lm_head"), (logits, Beta::Zero));
        let products = head.iter().map(|(first, weights, rows)| {
            let to = (to, *first, c.vocab - first - rows.rows());
            self.product(label, (*weights, rows), &v, Input::Vector(v.normed), to)
        });
        let mut nodes: Vec<Node> = match (apart, head.as_slice()) {
            (None, _) => products.map(Node::from).collect(),
            // Dense heads keep a norm of their own: that joining them pays was not measured.
            (Some(apart), [(_, weights, rows)]) if n == 1 && !rows.format.is_dense() => {
                let input = Input::Norm { stream: v.stream, weight: norm };
                let one = self.product(label, (*weights, rows), &v, input, (to, 0, 0));
                vec![Node { op: one, apart: [apart].into_iter().chain(products).collect() }]
            }
            (Some(apart), _) => [apart].into_iter().chain(products).map(Node::from).collect(),
        };
        self.nodes.append(&mut nodes);
        let choose = [("logits", logits.id), ("tokens", v.tokens), ("state", v.state)];
        match &options.sampling {
            None => {
                let argmax = Argmax { n: c.vocab, sequences: n };
                self.op(at(None, "argmax"), &lathe_kernels::argmax::OPERATION, &argmax, &choose);
            }
            Some(sampling) => {
                let sample = params(sampling, c.vocab);
                self.op(at(None, "sample"), &lathe_kernels::sample::OPERATION, &sample, &choose);
            }
        }
        let nodes = std::mem::take(&mut self.nodes);
        let chunks = self.chunks(&v, &norms);
        Steps { tensors: self.tensors, nodes, tail, chunks, caches: self.caches, streams }
    }

    /// Allocates the vectors that layers pass on, for up to `room` tokens. Tensors that nothing
    /// binds take no memory.
    pub(super) fn vectors(
        &mut self,
        prefix: &str,
        room: usize,
        acts: FloatFormat,
        of: TokensOf,
    ) -> Vectors {
        let (c, options, f32s) = (self.config, self.options, FloatFormat::F32);
        let words = options.sequences * lathe_kernels::STATE_WORDS;
        let state = self.tensor("state", TensorInit::Words(words));
        let words = options.sequences * (self.positions() + 1);
        let tokens = self.tensor("tokens", TensorInit::Words(words));
        let mut vector = |name: &str, len: usize, format: FloatFormat| {
            self.vector(&format!("{prefix}{name}"), room * len, format)
        };
        Vectors {
            state,
            tokens,
            stream: vector("x", c.hidden, f32s),
            normed: vector("normed", c.hidden, acts),
            branch: vector("branch", c.hidden, f32s),
            qkv: vector("qkv", (c.n_heads + 2 * c.n_kv_heads) * c.head_dim, f32s),
            q: vector("q", c.n_heads * c.head_dim, f32s),
            attended: vector("attention", c.n_heads * c.head_dim, acts),
            gate_up: vector("gate_up", 2 * c.ffn, f32s),
            gated: vector("gated", c.ffn, acts),
            rows: room,
            of,
            in_chunk: false,
        }
    }

    /// A matrix in as many parts as bindings need, with the first row of each.
    pub(super) fn parts(&mut self, name: &str, rows: &WeightRows) -> Vec<MatrixPart> {
        let parts = rows.split(self.binding_bytes).into_iter();
        parts
            .map(|(first, rows)| (first, self.matrix(matrix_name(name, first), &rows), rows))
            .collect()
    }

    /// The rows of tokens, and the parts of the table they come from.
    pub(super) fn embed(&mut self, v: &Vectors) -> Vec<MatrixPart> {
        let rows = &self.weights.embed;
        let tables = self.parts("token_embd", rows);
        let part = if tables.len() > 1 { TablePart::Part } else { TablePart::Whole };
        for (first, table, part_rows) in &tables {
            let embed = Embed {
                vocab: part_rows.rows(),
                hidden: self.config.hidden,
                weight: rows.format,
                // A tied head decides.
                packing: Packing::Blocks,
                scale: self.config.embed_scale,
                first_row: *first,
                part,
                n_tokens: v.rows,
                tokens_of: v.of,
            };
            let bindings =
                [("state", v.state), ("tokens", v.tokens), ("table", *table), ("x", v.stream.id)];
            self.op(at(None, "embed"), &lathe_kernels::embed::OPERATION, &embed, &bindings);
        }
        tables
    }

    /// The norm of the residual stream as an operation of its own.
    pub(super) fn norm(&self, label: Label, v: &Vectors, weight: TensorId) -> Listed {
        let norm = RmsNorm {
            n: self.config.hidden,
            rows: v.rows,
            eps: self.config.rms_eps,
            // GGUF stores Gemma's 1 + w.
            weight_offset: NormOffset::Standard,
            act_format: v.normed.format,
        };
        let bindings = [("x", v.stream.id), ("weight", weight), ("y", v.normed.id)];
        listed(label, &lathe_kernels::rms_norm::OPERATION, &norm, &bindings)
    }
}
