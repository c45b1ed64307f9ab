//! The operations of a step of several sequences: each is a token further after it. All stand at
//! one position, so the rows of a matrix meet all of them while they are read once.

use lathe_kernels::Beta;
use lathe_kernels::argmax::Argmax;

use super::step::{Lister, MatrixPart, Node, Vector, Vectors, vectors_product};
use crate::plan::recording::TensorId;

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
            let (x, to) = ((v.normed, v.rows), (logits, Beta::Zero));
            let offsets = (*first, c.vocab - first - rows.rows());
            let product = vectors_product((None, "lm_head"), (*weights, rows), x, to, offsets);
            self.nodes.push(Node::Op(product));
        }
        let argmax = Argmax { n: c.vocab, sequences: v.rows };
        let bindings = [("logits", logits.id), ("tokens", v.tokens), ("state", v.state)];
        self.op(None, "argmax", &lathe_kernels::argmax::OPERATION, &argmax, &bindings);
        tail
    }
}
