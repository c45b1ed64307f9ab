//! The operations of a step of several sequences: each is a token further after it. All stand at
//! one position, so the rows of a matrix meet all of them while they are read once.

use lathe_kernels::Beta;
use lathe_kernels::argmax::Argmax;
use lathe_kernels::gemv::Gemv;
use lathe_kernels::gemv_q::GemvQ;

use super::step::{Lister, MatrixPart, Vector, Vectors};
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
}
