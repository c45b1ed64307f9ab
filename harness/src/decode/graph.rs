//! A model's decode step as a recording.

use std::collections::BTreeMap;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use lathe_kernels::{Capabilities, Constants, Packing, RopeSpec, Shape};
use serde::Serialize;

use super::kv_cache::KvCache;
use super::load::Weights;
use super::sampling::Sampling;
use crate::error::{Error, Result};
use crate::model::{Activation, Config, RopeStyle};
use crate::plan::Plan;
use crate::recording::{Content, FloatFormat, Label, Recording, TensorId};
use crate::select::{Hints, SelectError, select};
use crate::tuned::Tuned;
use crate::weights::WeightRows;

/// What a graph is built for.
#[derive(Clone, Debug)]
pub struct GraphOptions {
    /// Positions it must hold.
    pub context: usize,
    /// Storage of the KV cache.
    pub kv: FloatFormat,
    /// Storage of what goes into matrices: normalised, gated and mixed vectors, where they are stored at all. The
    /// residual stream and the sums of products stay in f32, and so does a norm that its reader makes.
    pub acts: FloatFormat,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Explicit variants.
    pub hints: Hints,
    /// Tuned choices of the adapter at hand.
    pub tuned: Option<Arc<Tuned>>,
}

/// Which variant serves an operation, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Selected {
    /// Operation, without its layer.
    pub op: String,
    /// Kernel.
    pub kernel: String,
    /// Variant.
    pub variant: String,
    /// Parameters.
    pub shape: String,
    /// Reason.
    pub why: String,
    /// Values of its overrides.
    pub constants: Constants,
}

/// A decode step with handles to what a session reads and writes.
#[derive(Clone, Debug)]
pub struct DecodeGraph {
    /// The step.
    pub recording: Arc<Recording>,
    /// Step state; see [`lathe_kernels::StateWord`].
    pub state: TensorId,
    /// Token of every position.
    pub tokens: TensorId,
    /// Logits of the last step.
    pub logits: TensorId,
    /// One cache a layer.
    pub caches: Vec<KvCache>,
    /// How tokens are drawn; none for the greedy choice.
    pub sampling: Option<Sampling>,
    /// Positions it holds.
    pub context: usize,
    /// Vocabulary.
    pub vocab: usize,
    /// Selections, one an operation and shape.
    pub selected: Vec<Selected>,
    /// Bytes of weights read by one step.
    pub weight_bytes: u64,
}

impl DecodeGraph {
    /// Bytes of all KV caches.
    pub fn kv_bytes(&self) -> u64 {
        let tensors = self.caches.iter().flat_map(|c| [c.k, c.v]);
        tensors.map(|t| self.recording.tensors[t.0].device_bytes()).sum()
    }
}

struct Builder<'a> {
    recording: Recording,
    caps: &'a Capabilities,
    hints: &'a Hints,
    tuned: Option<&'a Tuned>,
    path: &'a Path,
    selected: BTreeMap<(&'static str, String), Selected>,
    order: Vec<(&'static str, String)>,
}

impl Builder<'_> {
    fn op(
        &mut self,
        layer: Option<usize>,
        op: &'static str,
        kernel: &'static str,
        shape: &[(&'static str, f64)],
        bindings: &[(&'static str, TensorId)],
    ) -> Result<()> {
        let (plan, shape) = self.select(op, kernel, shape)?;
        self.recording.op(Label { layer, op }, plan, shape, bindings);
        Ok(())
    }

    fn select(
        &mut self,
        op: &'static str,
        kernel: &'static str,
        shape: &[(&'static str, f64)],
    ) -> Result<(Plan, Shape)> {
        let kernel = lathe_kernels::kernel(kernel).expect("a registered kernel");
        let shape = Shape::new(shape);
        let selection =
            select(kernel, &shape, self.caps, self.hints, self.tuned).map_err(|e| match e {
                SelectError::UnknownVariant { .. } => {
                    Error::Usage(format!("{}: {op}: {e}", self.path.display()))
                }
                SelectError::HintUnavailable { .. } | SelectError::Nothing { .. } => {
                    Error::Unavailable {
                        what: format!("{op} of {}", self.path.display()),
                        adapter: "this adapter".into(),
                        reason: e.to_string(),
                    }
                }
            })?;
        let key = (op, shape.show(kernel.params));
        if !self.selected.contains_key(&key) {
            tracing::info!(
                op,
                kernel = kernel.name,
                variant = selection.plan.variant,
                shape = key.1,
                why = selection.why,
                "selected"
            );
            self.order.push(key.clone());
            self.selected.insert(
                key,
                Selected {
                    op: op.into(),
                    kernel: kernel.name.into(),
                    variant: selection.plan.variant.clone(),
                    shape: shape.show(kernel.params),
                    why: selection.why,
                    constants: selection.plan.constants.clone(),
                },
            );
        }
        Ok((selection.plan, shape))
    }

    fn values(&mut self, name: String, values: &Arc<[f32]>) -> TensorId {
        self.recording.tensor(name, Content::Values(Arc::clone(values)))
    }

    /// A matrix on the device, packed as its GEMV wants it, with that GEMV.
    fn matrix(
        &mut self,
        op: &'static str,
        name: String,
        rows: &WeightRows,
        first: usize,
        input: Input,
        beta: f64,
    ) -> Result<Matrix> {
        let mut shape = vec![
            ("ROWS", rows.rows() as f64),
            ("K", rows.k as f64),
            ("WEIGHT", rows.format.code()),
            ("FIRST", first as f64),
        ];
        let kernel = match input {
            Input::Vector(x) => {
                let (acts, order) = (self.format(x).code(), rows.order.code());
                shape.extend([("ACTS", acts), ("COLS", 1.0), ("ORDER", order), ("BETA", beta)]);
                if rows.format.is_dense() { "gemv" } else { "gemv_q" }
            }
            Input::Norm { eps, .. } => {
                shape.extend([("EPS", eps), ("OFFSET", 0.0)]);
                "norm_gemv"
            }
        };
        let (plan, shape) = self.select(op, kernel, &shape)?;
        let weights = self.recording.tensor(name, Content::Weights(rows.clone(), plan.packing));
        Ok(Matrix { op, plan, shape, weights, input })
    }

    /// A matrix in as many parts as bindings need, with the first row of each.
    fn parts(
        &mut self,
        op: &'static str,
        name: &str,
        rows: &WeightRows,
        input: Input,
    ) -> Result<Vec<(usize, Matrix)>> {
        let parts = rows.split(self.caps.binding_bytes).into_iter();
        parts
            .map(|(first, rows)| {
                Ok((first, self.matrix(op, part_name(name, first), &rows, first, input, 0.0)?))
            })
            .collect()
    }

    fn product(&mut self, layer: Option<usize>, matrix: Matrix, y: TensorId) {
        let Matrix { op, plan, shape, weights, input } = matrix;
        let mut bindings = vec![("weights", weights), ("y", y)];
        match input {
            Input::Vector(x) => bindings.push(("x", x)),
            Input::Norm { stream, weight, .. } => {
                bindings.extend([("x", stream), ("norm_weight", weight)]);
            }
        }
        self.recording.op(Label { layer, op }, plan, shape, &bindings);
    }

    /// Matrices under each other times their input: one GEMV each, side by side in y, or added to
    /// what is there.
    fn gemv(
        &mut self,
        layer: Option<usize>,
        op: &'static str,
        matrices: &[WeightRows],
        input: Input,
        to: To,
    ) -> Result<()> {
        let (y, beta) = match to {
            To::Vector(y) => (y, 0.0),
            To::Stream(stream) => (stream, 1.0),
        };
        let mut first = 0;
        for (i, rows) in matrices.iter().enumerate() {
            let name = match (layer, i) {
                (Some(layer), 0) => format!("l{layer}.{op}"),
                (Some(layer), _) => format!("l{layer}.{op}.{i}"),
                (None, _) => op.to_owned(),
            };
            let matrix = self.matrix(op, name, rows, first, input, beta)?;
            self.product(layer, matrix, y);
            first += rows.rows();
        }
        Ok(())
    }

    /// A token's heads and its attention: one operation; two where a hint names one of theirs, where only
    /// the naive variant of the one would run, and for caches of so few or so many slots that two were
    /// measured to be as fast or faster (docs/kernels/attention_append.md).
    fn attention(&mut self, layer: usize, h: &Heads<'_>) -> Result<()> {
        let label = Some(layer);
        let [k_cache, v_cache] = h.caches;
        let kv = [("state", h.state), ("k_cache", k_cache), ("v_cache", v_cache)];
        let token = [("qkv", h.qkv), ("rope", h.rope)];
        let shape = [&h.cache[..], &h.turn, &h.mix].concat();
        if !self.apart(&shape) {
            let weights = h.qk_norm.map(|weights| &weights[..]).concat();
            let qk_norm = self.values(format!("l{layer}.qk_norm"), &weights.into());
            let bindings = [&kv[..], &token, &[("qk_norm", qk_norm), ("y", h.y)]].concat();
            return self.op(label, "attention", "attention_append", &shape, &bindings);
        }
        let [q, k] = h.qk_norm;
        let q_norm = self.values(format!("l{layer}.q_norm"), q);
        let k_norm = self.values(format!("l{layer}.k_norm"), k);
        let shape = [&h.cache[..], &h.turn].concat();
        let own = [("q_norm", q_norm), ("k_norm", k_norm), ("q", h.q)];
        let bindings = [&kv[..], &token, &own].concat();
        self.op(label, "qkv_rope_append", "qkv_rope_append", &shape, &bindings)?;
        let shape = [&h.cache[..], &h.mix].concat();
        let bindings = [&kv[..], &[("q", h.q), ("y", h.y)]].concat();
        self.op(label, "attention", "attention_decode", &shape, &bindings)
    }

    fn apart(&self, shape: &[(&'static str, f64)]) -> bool {
        let hinted = |name: &str| self.hints.contains_key(name);
        if hinted("attention_append") {
            return false;
        }
        let kernel = lathe_kernels::kernel("attention_append").expect("a registered kernel");
        let fused = select(kernel, &Shape::new(shape), self.caps, self.hints, self.tuned);
        let capacity = shape.iter().find(|p| p.0 == "CAPACITY").map_or(0.0, |p| p.1);
        hinted("qkv_rope_append")
            || hinted("attention_decode")
            || !(129.0..=8192.0).contains(&capacity)
            || fused.map_or(true, |fused| fused.plan.variant == "naive")
    }

    fn format(&self, activation: TensorId) -> FloatFormat {
        match self.recording.tensors[activation.0].content {
            Content::Activation { format, .. } => format,
            _ => FloatFormat::F32,
        }
    }
}

/// What turns a layer's heads and mixes its values.
struct Heads<'a> {
    /// Parameters of the cache, of what happens to heads, of the mix.
    cache: Vec<(&'static str, f64)>,
    turn: Vec<(&'static str, f64)>,
    mix: Vec<(&'static str, f64)>,
    /// Weights of the norms of queries and keys.
    qk_norm: [&'a Arc<[f32]>; 2],
    state: TensorId,
    caches: [TensorId; 2],
    rope: TensorId,
    qkv: TensorId,
    /// Turned queries, where they have a tensor.
    q: TensorId,
    y: TensorId,
}

/// The name of a part of a matrix.
fn part_name(name: &str, first: usize) -> String {
    match first {
        0 => name.to_owned(),
        row => format!("{name}.{row}"),
    }
}

/// What a matrix meets.
#[derive(Clone, Copy, Debug)]
enum Input {
    /// A vector as it is.
    Vector(TensorId),
    /// The norm of the residual stream, made on the way.
    Norm { stream: TensorId, weight: TensorId, eps: f64 },
}

/// Where a product goes.
#[derive(Clone, Copy, Debug)]
enum To {
    /// A vector of its own.
    Vector(TensorId),
    /// Onto the residual stream.
    Stream(TensorId),
}

/// A matrix on the device with the GEMV that reads it, and what that meets.
struct Matrix {
    op: &'static str,
    plan: Plan,
    shape: Shape,
    weights: TensorId,
    input: Input,
}

/// Gate and up as one matrix, which `fused_ffn` reads; absent when they have two formats.
fn one_matrix(gate_up: &[WeightRows]) -> Option<&WeightRows> {
    match gate_up {
        [rows] => Some(rows),
        _ => None,
    }
}

/// Builds the decode step of a model. `path` names the model in errors.
pub fn build(
    path: &Path,
    config: &Config,
    weights: &Weights,
    caps: &Capabilities,
    options: &GraphOptions,
) -> Result<DecodeGraph> {
    for name in options.hints.keys() {
        if lathe_kernels::kernel(name).is_none() {
            let known: Vec<_> = lathe_kernels::KERNELS.iter().map(|k| k.name).collect();
            return Err(Error::Usage(format!(
                "hint for kernel {name}, which does not exist; there are {}",
                known.join(", ")
            )));
        }
    }
    let c = config;
    let (hidden, d) = (c.hidden, c.head_dim);
    let mut b = Builder {
        recording: Recording::default(),
        caps,
        hints: &options.hints,
        tuned: options.tuned.as_deref(),
        path,
        selected: BTreeMap::new(),
        order: Vec::new(),
    };
    let state = b.recording.tensor("state", Content::Words(lathe_kernels::layout::STATE_WORDS));
    let tokens = b.recording.tensor("tokens", Content::Words(options.context + 1));
    let tensor = |b: &mut Builder<'_>, name: &str, len: usize, format: FloatFormat| {
        b.recording.tensor(name, Content::Activation { len, format })
    };
    let activation = |b: &mut Builder<'_>, name: &str, len| tensor(b, name, len, FloatFormat::F32);
    let x = activation(&mut b, "x", hidden);
    let normed = tensor(&mut b, "normed", hidden, options.acts);
    let branch = activation(&mut b, "branch", hidden);
    let qkv = activation(&mut b, "qkv", (c.n_heads + 2 * c.n_kv_heads) * d);
    let q = activation(&mut b, "q", c.n_heads * d);
    let mixed = tensor(&mut b, "attention", c.n_heads * d, options.acts);
    let split = weights.layers.iter().any(|w| one_matrix(&w.gate_up).is_none());
    let gate_up = split.then(|| activation(&mut b, "gate_up", 2 * c.ffn));
    let gated = tensor(&mut b, "gated", c.ffn, options.acts);
    let logits = activation(&mut b, "logits", c.vocab);
    let ones: Arc<[f32]> = vec![1.0; d].into();

    let mut ropes: Vec<(f32, TensorId)> = Vec::new();
    let mut rope_of = |b: &mut Builder<'_>, base: f32| match ropes.iter().find(|r| r.0 == base) {
        Some((_, id)) => *id,
        None => {
            let spec = RopeSpec {
                base,
                head_dim: d,
                positions: options.context,
                freq_factors: weights.rope_freqs.clone(),
            };
            let id = b.recording.tensor(format!("rope.{base}"), Content::Rope(spec));
            ropes.push((base, id));
            id
        }
    };

    // The head first: a tied one decides how the embedding is packed.
    let (head_rows, head_name) = match &weights.head {
        None => (&weights.embed, "token_embd"),
        Some(rows) => (rows, "output"),
    };
    let head = b.parts("lm_head", head_name, head_rows, Input::Vector(normed))?;
    let tables: Vec<_> = match &weights.head {
        None => head.iter().map(|(first, m)| (*first, m.weights, m.plan.packing)).collect(),
        Some(_) => {
            let parts = weights.embed.split(caps.binding_bytes).into_iter();
            parts
                .map(|(first, rows)| {
                    let content = Content::Weights(rows, Packing::Blocks);
                    let name = part_name("token_embd", first);
                    (first, b.recording.tensor(name, content), Packing::Blocks)
                })
                .collect()
        }
    };
    let part = f64::from(u8::from(tables.len() > 1));
    for (i, (first, table, packing)) in tables.iter().enumerate() {
        let end = tables.get(i + 1).map_or(c.vocab, |next| next.0);
        let shape = [
            ("VOCAB", (end - first) as f64),
            ("HIDDEN", hidden as f64),
            ("WEIGHT", weights.embed.format.code()),
            ("SCALE", f64::from(c.embed_scale)),
            ("PACKING", packing.code()),
            ("FIRST", *first as f64),
            ("PART", part),
        ];
        let bindings = [("state", state), ("tokens", tokens), ("table", *table), ("x", x)];
        b.op(None, "embed", "embed", &shape, &bindings)?;
    }

    let norm_shape = [
        ("N", hidden as f64),
        ("EPS", f64::from(c.rms_eps)),
        // GGUF stores Gemma's 1 + w.
        ("OFFSET", 0.0),
        ("ACTS", options.acts.code()),
    ];
    let heads_shape = [
        ("GROUP", (c.n_heads / c.n_kv_heads) as f64),
        ("KV_HEADS", c.n_kv_heads as f64),
        ("HEAD_DIM", d as f64),
    ];
    let with = |more: &[(&'static str, f64)]| [&heads_shape[..], more].concat();
    let ffn_shape = [
        ("N", c.ffn as f64),
        ("ACT", if c.activation == Activation::Silu { 0.0 } else { 1.0 }),
        ("ACTS", options.acts.code()),
    ];
    // Where branches are normed before they are added, one dispatch does that, adds, and norms the
    // stream for the next matrix, beginning with each layer's first norm and ending with the last of
    // all. Else the matrix that ends a branch adds to the stream, and the next one norms what it reads.
    let mut norms: Vec<TensorId> = weights
        .layers
        .iter()
        .enumerate()
        .map(|(i, w)| b.values(format!("l{i}.attn_norm"), &w.attn_norm))
        .collect();
    norms.push(b.values("output_norm".into(), &weights.output_norm));
    let eps = f64::from(c.rms_eps);
    let norm = |b: &mut Builder<'_>, layer: Option<usize>, op, weight| {
        let shape = [&norm_shape[..], &[("ROWS", 1.0)]].concat();
        b.op(layer, op, "rms_norm", &shape, &[("x", x), ("weight", weight), ("y", normed)])
    };
    if c.post_norms && c.n_layers > 0 {
        norm(&mut b, Some(0), "attn_norm", norms[0])?;
    }
    let input = |weight| match c.post_norms {
        true => Input::Vector(normed),
        false => Input::Norm { stream: x, weight, eps },
    };
    let to = if c.post_norms { To::Vector(branch) } else { To::Stream(x) };
    let mut caches = Vec::with_capacity(c.n_layers);
    let mut weight_bytes = 0u64;
    for (i, w) in weights.layers.iter().enumerate() {
        let layer = Some(i);
        let window = c.layer_window(i);
        let capacity = window.map_or(options.context, |w| w.min(options.context)).max(1);
        let kv_len = c.n_kv_heads * capacity * d;
        let kv_content = Content::Kv { len: kv_len, format: options.kv };
        let cache = KvCache {
            layer: i,
            k: b.recording.tensor(format!("l{i}.k_cache"), kv_content.clone()),
            v: b.recording.tensor(format!("l{i}.v_cache"), kv_content),
            capacity,
            sliding: window.is_some_and(|w| w < options.context),
        };
        caches.push(cache);

        b.gemv(layer, "qkv", &w.qkv, input(norms[i]), To::Vector(qkv))?;
        let rope = rope_of(&mut b, c.layer_rope_base(i));
        let qk_norm = w.qk_norm.as_ref().map_or([&ones, &ones], |[q, k]| [q, k]);
        let heads = Heads {
            cache: with(&[("CAPACITY", capacity as f64), ("KV", options.kv.code())]),
            turn: vec![
                ("NORM", f64::from(u8::from(c.qk_norm))),
                ("STYLE", if c.rope_style == RopeStyle::Interleaved { 0.0 } else { 1.0 }),
                ("EPS", f64::from(c.rms_eps)),
                ("BASE", f64::from(c.layer_rope_base(i))),
                ("FACTORS", f64::from(u8::from(weights.rope_freqs.is_some()))),
            ],
            mix: vec![("SCALE", f64::from(c.attention_scale)), ("ACTS", options.acts.code())],
            qk_norm,
            state,
            caches: [cache.k, cache.v],
            rope,
            qkv,
            q,
            y: mixed,
        };
        b.attention(i, &heads)?;
        let rows = slice::from_ref(&w.attn_output);
        b.gemv(layer, "attn_output", rows, Input::Vector(mixed), to)?;
        let ffn_norm = b.values(format!("l{i}.ffn_norm"), &w.ffn_norm);
        let add = |b: &mut Builder<'_>, op, post: (&str, &Option<Arc<[f32]>>), next| {
            let (name, Some(post)) = post else { return Ok(()) };
            let post = b.values(format!("l{i}.{name}"), post);
            let weights = [("post_weight", post), ("next_weight", next)];
            let bindings = [&[("x", x), ("delta", branch), ("y", normed)], &weights[..]].concat();
            let shape = [&norm_shape[..], &[("POST", 1.0)]].concat();
            b.op(layer, op, "residual_rms_norm", &shape, &bindings)
        };
        let post = ("post_attention_norm", &w.post_attention_norm);
        add(&mut b, "attn_residual", post, ffn_norm)?;

        match (one_matrix(&w.gate_up), gate_up) {
            (None, Some(gate_up)) => {
                b.gemv(layer, "ffn_gate_up", &w.gate_up, input(ffn_norm), To::Vector(gate_up))?;
                let bindings = [("gate_up", gate_up), ("y", gated)];
                b.op(layer, "ffn_act", "glu", &ffn_shape, &bindings)?;
            }
            (rows, _) => {
                let rows = rows.unwrap_or(&w.gate_up[0]);
                let fused = [
                    ("K", hidden as f64),
                    ("WEIGHT", rows.format.code()),
                    ("NORM", f64::from(u8::from(!c.post_norms))),
                    ("EPS", eps),
                ];
                let shape = [&ffn_shape[..], &fused].concat();
                let (plan, shape) = b.select("ffn_gate_up", "fused_ffn", &shape)?;
                let content = Content::Weights(rows.clone(), plan.packing);
                let bindings = [
                    ("weights", b.recording.tensor(format!("l{i}.ffn_gate_up"), content)),
                    // Read without a norm,
                    ("x", normed),
                    // and these with one.
                    ("stream", x),
                    ("norm_weight", ffn_norm),
                    ("y", gated),
                ];
                b.recording.op(Label { layer, op: "ffn_gate_up" }, plan, shape, &bindings);
            }
        }
        b.gemv(layer, "ffn_down", slice::from_ref(&w.ffn_down), Input::Vector(gated), to)?;
        add(&mut b, "ffn_residual", ("post_ffw_norm", &w.post_ffw_norm), norms[i + 1])?;
        for rows in w.qkv.iter().chain(&w.gate_up).chain([&w.attn_output, &w.ffn_down]) {
            weight_bytes += (rows.rows() * rows.row_bytes()) as u64;
        }
    }
    if !c.post_norms || c.n_layers == 0 {
        norm(&mut b, None, "output_norm", norms[c.n_layers])?;
    }
    for (_, part) in head {
        b.product(None, part, logits);
    }
    weight_bytes += (head_rows.rows() * head_rows.row_bytes()) as u64;
    let choose = [("logits", logits), ("tokens", tokens), ("state", state)];
    match &options.sampling {
        None => b.op(None, "argmax", "argmax", &[("N", c.vocab as f64)], &choose)?,
        Some(sampling) => b.op(None, "sample", "sample", &sampling.shape(c.vocab), &choose)?,
    }

    let Builder { recording, mut selected, order, .. } = b;
    Ok(DecodeGraph {
        recording: Arc::new(recording),
        state,
        tokens,
        logits,
        caches,
        sampling: options.sampling,
        context: options.context,
        vocab: c.vocab,
        selected: order.iter().filter_map(|key| selected.remove(key)).collect(),
        weight_bytes,
    })
}
