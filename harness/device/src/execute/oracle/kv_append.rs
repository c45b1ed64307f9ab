//! A token's keys and values in their slot.

use lathe_kernels::kv_append::KvAppend;
use lathe_reference::Expected;

use super::{Inputs, Oracle, Outcomes, cache};
use crate::execute::value::Value;
use crate::plan::recording::Op;

impl Oracle for KvAppend {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let [k, v] = cache::new_rows(self, inputs.f32s("qkv")).map(Expected::exact);
        let appended = |name, row| cache::appended(self, inputs, name, row);
        inputs.reals([appended("k_cache", &k), appended("v_cache", &v)])
    }

    fn in_place(&self, op: &Op, values: &mut [Value]) -> bool {
        let inputs = Inputs { op, values };
        let position = inputs.position();
        let [k, v] = cache::new_rows(self, inputs.f32s("qkv")).map(<[f32]>::to_vec);
        cache::append(self, op, values, (0, position), [&k, &v]);
        true
    }
}
