//! A token's heads and its attention in one.

use lathe_reference::attention_append as reference;
use lathe_reference::attention_decode::Attention;
use lathe_reference::kv_append::{KvFormat, kv_append};
use lathe_reference::qkv_rope_append::{Token, stored};

use super::qkv_rope_append::token_of;
use super::{Inputs, Outcome, Outcomes, Value, cache_shape, kv_format};
use crate::recording::{FloatFormat, Op};

fn token(inputs: &Inputs<'_>) -> Token {
    token_of(inputs, || inputs.f32s("qk_norm").split_at(inputs.shape().dim("HEAD_DIM")).into())
}

fn mixed(inputs: &Inputs<'_>, token: &Token, k: &[f32], v: &[f32]) -> reference::Mixed {
    let s = inputs.shape();
    let attention = Attention {
        heads: s.dim("KV_HEADS") * s.dim("GROUP"),
        scale: s.float("SCALE") as f32,
        seen: inputs.position() as usize + 1,
    };
    reference::attention_append(token, k, v, &cache_shape(s), &attention)
}

pub(super) fn attention_append(inputs: &Inputs<'_>) -> Outcomes {
    let (new, shape) = (token(inputs), cache_shape(inputs.shape()));
    let format = kv_format(inputs.shape());
    let caches = [("k_cache", &new.k), ("v_cache", &new.v)].map(|(name, row)| {
        let old = inputs.f32s(name);
        let mut cache = old.to_vec();
        kv_append(&mut cache, &row.to_f32(), &shape, inputs.position(), format);
        let expected = stored(old, row, &shape, inputs.position());
        (cache, (inputs.op.tensor(name), Outcome::Real(expected)))
    });
    let [(k, k_stored), (v, v_stored)] = caches;
    let reference::Mixed { mut y, renewed } = mixed(inputs, &new, &k, &v);
    // What rounding the new row may move is not proportional to f32's: in units of the bound.
    let step = match format {
        KvFormat::F16 => 1.0 / 1024.0,
        KvFormat::F32 => 0.0,
    };
    // A decode step keeps SEEN in its state.
    let seen = inputs.shape().clone().with("SEEN", f64::from(inputs.position()) + 1.0);
    let k = (inputs.op.kernel().tolerance)(&seen).k * f64::from(f32::EPSILON);
    for (magnitude, renewed) in y.magnitude.iter_mut().zip(&renewed) {
        *magnitude += renewed * step / k;
    }
    let y = inputs.real("y", y);
    y.into_iter().chain([k_stored, v_stored]).collect()
}

/// As the operation does, without a copy of the caches.
pub(super) fn in_place(op: &Op, values: &mut [Value]) {
    let inputs = Inputs { op, values };
    let (new, position) = (token(&inputs), inputs.position());
    let (shape, format) = (cache_shape(&op.shape), kv_format(&op.shape));
    for (name, row) in [("k_cache", &new.k), ("v_cache", &new.v)] {
        if let Value::F32(cache) = &mut values[op.tensor(name).0] {
            kv_append(cache, &row.to_f32(), &shape, position, format);
        }
    }
    let inputs = Inputs { op, values };
    let mixed = mixed(&inputs, &new, inputs.f32s("k_cache"), inputs.f32s("v_cache"));
    let acts = FloatFormat::from_code(op.shape.dim("ACTS"));
    let y = mixed.y.to_f32().iter().map(|v| acts.round(*v)).collect();
    values[op.tensor("y").0] = Value::F32(y);
}
