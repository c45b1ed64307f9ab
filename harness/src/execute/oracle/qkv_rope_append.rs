//! The product of the QKV matrix on its way to attention.

use lathe_kernels::Norm;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_reference::qkv_rope_append as reference;

use super::{Inputs, Oracle, Outcomes, cache};
use crate::execute::value::{Outcome, Value};
use crate::plan::recording::Op;

fn token(p: &QkvRopeAppend, inputs: &Inputs<'_>) -> reference::Token {
    let weights = || (["q_norm", "k_norm"].map(|name| inputs.f32s(name)), p.eps);
    let norm = (p.qk_norm == Norm::Rms).then(weights);
    let rope = inputs.rotation(p.rope_style);
    reference::qkv_rope_append(inputs.f32s("qkv"), &cache::shape(p), norm, &rope)
}

impl Oracle for QkvRopeAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (new, shape) = (token(self, inputs), cache::shape(self));
        let stored = |name: &str, new| {
            let cache = reference::stored(inputs.f32s(name), new, &shape, inputs.position());
            (inputs.op.tensor(name), Outcome::Real(cache))
        };
        let caches = [stored("k_cache", &new.k), stored("v_cache", &new.v)];
        let q = inputs.real("q", new.q);
        q.into_iter().chain(caches).collect()
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values };
        let (new, position) = (token(self, &inputs), inputs.position());
        cache::append(self, op, values, position, [&new.k.to_f32(), &new.v.to_f32()]);
        values[op.tensor("q").0] = Value::F32(new.q.to_f32());
        true
    }
}
