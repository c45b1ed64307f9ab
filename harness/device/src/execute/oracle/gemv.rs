//! Dense rows times one or more vectors.

use lathe_kernels::gemv::Gemv;
use lathe_reference::Expected;

use super::rows::{gemv, onto, placed};
use super::{Inputs, Oracle, Outcomes};

impl Oracle for Gemv {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (weights, first) = (inputs.weights("weights"), self.y_offset);
        let ys = inputs.f32s("y").chunks(first + self.rows + self.y_after);
        let vectors = inputs.f32s("x").chunks(self.k).zip(ys).take(self.n_vectors);
        let product = |(x, y)| placed(y, first, onto(y, first, self.beta, gemv(weights, x)));
        inputs.real("y", Expected::join(vectors.map(product)))
    }
}
