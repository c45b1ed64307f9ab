//! A token's heads and its attention in one.

use lathe_kernels::Norm;
use lathe_kernels::attention::Heads;
use lathe_kernels::attention_append::AttentionAppend;
use lathe_reference::Expected;
use lathe_reference::attention_append as reference;
use lathe_reference::attention_decode::Attention;
use lathe_reference::kv_append::{CacheShape, kv_append};
use lathe_reference::qkv_rope_append::{Token, qkv_rope_append};

use super::{Inputs, Oracle, Outcomes, cache};
use crate::execute::value::Value;
use crate::plan::recording::Op;

fn token(p: &AttentionAppend, inputs: &Inputs<'_>) -> Token {
    let weights = || (inputs.f32s("qk_norm").split_at(p.head_dim).into(), p.eps);
    let norm = (p.qk_norm == Norm::Rms).then(weights);
    let rope = inputs.rotation(p.rope_style);
    let one = CacheShape { kv_heads: p.kv_heads, ..cache::shape(p) };
    let heads = p.qkv_heads() / p.sequences;
    let rows = inputs.f32s("qkv").chunks(heads * p.head_dim).take(p.sequences);
    let tokens: Vec<_> = rows.map(|row| qkv_rope_append(row, &one, norm, &rope)).collect();
    // Heads of all sequences, one after the other.
    let all = |of: fn(&Token) -> &Expected| Expected::join(tokens.iter().map(|t| of(t).clone()));
    Token { q: all(|t| &t.q), k: all(|t| &t.k), v: all(|t| &t.v) }
}

fn attended(
    p: &AttentionAppend,
    inputs: &Inputs<'_>,
    token: &Token,
    [k, v]: [&[f32]; 2],
) -> Expected {
    let seen = inputs.position() as usize + 1;
    let attention = Attention { heads: p.q_heads(), scale: p.scale, seen };
    let errors = [&token.k, &token.v].map(|row| {
        let row = row.to_f32();
        let vectors = row.chunks(p.head_dim);
        vectors.flat_map(|vector| cache::format(p).ambiguity(vector)).collect::<Vec<_>>()
    });
    let errors = [&errors[0][..], &errors[1]];
    reference::attention_append(token, k, v, &cache::shape(p), &attention, errors)
}

impl Oracle for AttentionAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (new, shape, format) = (token(self, inputs), cache::shape(self), cache::format(self));
        let caches = [("k_cache", &new.k), ("v_cache", &new.v)].map(|(name, row)| {
            let mut cache = inputs.f32s(name).to_vec();
            kv_append(&mut cache, &row.to_f32(), &shape, inputs.position(), format);
            (cache, cache::appended(self, inputs, name, row))
        });
        let [(k, k_stored), (v, v_stored)] = caches;
        inputs.reals([("y", attended(self, inputs, &new, [&k, &v])), k_stored, v_stored])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values };
        let (new, position) = (token(self, &inputs), inputs.position());
        cache::append(self, op, values, (0, position), [&new.k.to_f32(), &new.v.to_f32()]);
        let inputs = Inputs { op, values };
        let caches = ["k_cache", "v_cache"].map(|name| inputs.f32s(name));
        let y = attended(self, &inputs, &new, caches).to_f32();
        let y = y.iter().map(|v| self.act_format.round(*v)).collect();
        values[op.tensor("y").0] = Value::F32(y);
        true
    }
}
