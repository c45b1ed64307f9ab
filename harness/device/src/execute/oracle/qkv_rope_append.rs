//! Heads of the QKV product normed, rotated and stored before attention, token by token.

use lathe_kernels::attention::Heads;
use lathe_kernels::qkv_rope_append::QkvRopeAppend;
use lathe_kernels::{Norm, StateWord, TokensOf};
use lathe_reference::Expected;
use lathe_reference::qkv_rope_append as reference;

use super::{Inputs, Oracle, Outcomes, cache};
use crate::execute::value::Value;
use crate::plan::recording::Op;

fn tokens(p: &QkvRopeAppend, inputs: &Inputs<'_>) -> Vec<reference::Token> {
    let weights = || (["q_norm", "k_norm"].map(|name| inputs.f32s(name)), p.eps);
    let norm = (p.qk_norm == Norm::Rms).then(weights);
    let rows = inputs.f32s("qkv").chunks(p.qkv_heads() * p.head_dim);
    let token = |(i, row)| {
        let mut rope = inputs.rotation(p.rope_style);
        if p.tokens_of == TokensOf::One {
            rope.position += i as u32;
        }
        reference::qkv_rope_append(row, &cache::shape(p), norm, &rope)
    };
    rows.enumerate().map(token).collect()
}

/// Sequence and position in the cache of each token that is stored: all tokens but a chunk's
/// padding beyond the prompt.
fn places(p: &QkvRopeAppend, inputs: &Inputs<'_>) -> Vec<(usize, u32)> {
    let position = inputs.position();
    if p.tokens_of == TokensOf::Each {
        return (0..p.n_tokens).map(|sequence| (sequence, position)).collect();
    }
    let first = if p.before > 0 { p.before as u32 } else { position };
    let count = match p.n_tokens {
        1 => 1,
        n => {
            let given = inputs.words("state")[StateWord::PromptLen as usize];
            given.saturating_sub(position).min(n as u32)
        }
    };
    (first..first + count).map(|place| (0, place)).collect()
}

fn queries(tokens: Vec<reference::Token>) -> Expected {
    Expected::join(tokens.into_iter().map(|token| token.q))
}

impl Oracle for QkvRopeAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (tokens, shape) = (tokens(self, inputs), cache::shape(self));
        let format = cache::format(self);
        let stored = |name: &'static str, new: fn(&reference::Token) -> &Expected| {
            let caches = inputs.f32s(name).chunks(shape.elements());
            let mut caches: Vec<_> = caches.map(Expected::exact).collect();
            for (token, (sequence, place)) in tokens.iter().zip(places(self, inputs)) {
                reference::store(&mut caches[sequence], new(token), &shape, place, format);
            }
            (name, Expected::join(caches))
        };
        let [k, v] = [stored("k_cache", |t| &t.k), stored("v_cache", |t| &t.v)];
        inputs.reals([("q", queries(tokens)), k, v])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values };
        let (tokens, places) = (tokens(self, &inputs), places(self, &inputs));
        for (token, place) in tokens.iter().zip(places) {
            cache::append(self, op, values, place, [&token.k.to_f32(), &token.v.to_f32()]);
        }
        if let Value::F32(q) = &mut values[op.tensor("q").0] {
            // It may have room for more rows than these tokens fill.
            let new = queries(tokens).to_f32();
            q[..new.len()].copy_from_slice(&new);
        }
        true
    }
}
