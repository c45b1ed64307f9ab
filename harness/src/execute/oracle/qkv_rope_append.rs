//! The product of the QKV matrix on its way to attention.

use lathe_reference::kv_append::kv_append;
use lathe_reference::qkv_rope_append as reference;

use super::{Inputs, Outcome, Outcomes, Value, cache_shape, kv_format};
use crate::recording::Op;

fn token(inputs: &Inputs<'_>) -> reference::Token {
    token_of(inputs, || ["q_norm", "k_norm"].map(|name| inputs.f32s(name)))
}

/// The token, with what gives the norms' weights where there are some.
pub(super) fn token_of<'a>(
    inputs: &Inputs<'a>,
    weights: impl FnOnce() -> [&'a [f32]; 2],
) -> reference::Token {
    let s = inputs.shape();
    let norm = (s.dim("NORM") == 1).then(|| (weights(), s.float("EPS") as f32));
    reference::qkv_rope_append(inputs.f32s("qkv"), &cache_shape(s), norm, &inputs.rope())
}

pub(super) fn qkv_rope_append(inputs: &Inputs<'_>) -> Outcomes {
    let (new, shape) = (token(inputs), cache_shape(inputs.shape()));
    let stored = |name: &str, new| {
        let cache = reference::stored(inputs.f32s(name), new, &shape, inputs.position());
        (inputs.op.tensor(name), Outcome::Real(cache))
    };
    let caches = [stored("k_cache", &new.k), stored("v_cache", &new.v)];
    let q = inputs.real("q", new.q);
    q.into_iter().chain(caches).collect()
}

/// As the operation does, without a copy of the caches.
pub(super) fn in_place(op: &Op, values: &mut [Value]) {
    let inputs = Inputs { op, values };
    let (new, position) = (token(&inputs), inputs.position());
    let (shape, format) = (cache_shape(&op.shape), kv_format(&op.shape));
    for (name, new) in [("k_cache", &new.k), ("v_cache", &new.v)] {
        if let Value::F32(cache) = &mut values[op.tensor(name).0] {
            kv_append(cache, &new.to_f32(), &shape, position, format);
        }
    }
    values[op.tensor("q").0] = Value::F32(new.q.to_f32());
}
