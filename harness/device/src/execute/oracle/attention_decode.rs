//! One token's queries over the cache, a head a task: query heads do not know of each other.

use lathe_kernels::attention::Heads;
use lathe_kernels::attention_decode::AttentionDecode;
use lathe_reference::Expected;
use lathe_reference::attention_decode::{Attention, attention_decode};
use lathe_reference::kv_append::CacheShape;
use rayon::prelude::*;

use super::{Inputs, Oracle, Outcomes, cache};

impl Oracle for AttentionDecode {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let (heads, d) = (self.q_heads(), self.head_dim);
        let attention =
            Attention { heads: 1, scale: self.scale, seen: inputs.position() as usize + 1 };
        let q = &inputs.f32s("q")[..heads * d];
        let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
        let one = CacheShape { kv_heads: 1, ..cache::shape(self) };
        let of_head = |(head, q): (usize, &[f32])| {
            let part = head / self.q_per_kv * one.elements()..;
            let (k, v) = (&k[part.clone()][..one.elements()], &v[part][..one.elements()]);
            attention_decode(q, k, v, &one, &attention)
        };
        let parts: Vec<_> = q.par_chunks(d).enumerate().map(of_head).collect();
        inputs.real("y", Expected::join(parts))
    }
}
