//! Query and key heads normed and rotated in place.

use lathe_kernels::Norm;
use lathe_kernels::attention::Heads;
use lathe_kernels::qk_norm_rope::QkNormRope;
use lathe_reference::Expected;
use lathe_reference::qk_norm_rope::qk_norm_rope;

use super::{Inputs, Oracle, Outcomes};

impl Oracle for QkNormRope {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let d = self.head_dim;
        let rope = inputs.rotation(self.rope_style);
        let norm = |name| (self.qk_norm == Norm::Rms).then(|| (inputs.f32s(name), self.eps));
        let rotated = |heads: &[f32], name| qk_norm_rope(heads, d, norm(name), &rope);
        let (q, rest) = inputs.f32s("qkv").split_at(self.q_heads() * d);
        let (k, v) = rest.split_at(self.kv_heads * d);
        let parts = [rotated(q, "q_norm"), rotated(k, "k_norm"), Expected::exact(v)];
        inputs.real("qkv", Expected::join(parts))
    }
}
