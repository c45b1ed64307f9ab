//! Copies between a ring and a chunk's rows.

use lathe_kernels::kv_window::KvWindow;
use lathe_kernels::{StateWord, WindowWay};
use lathe_reference::Expected;
use lathe_reference::kv_append::CacheShape;
use lathe_reference::kv_window::{to_ring, to_rows};

use super::{Inputs, Oracle, Outcomes};

impl Oracle for KvWindow {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        let shape =
            CacheShape { kv_heads: self.kv_heads, capacity: self.kv_size, head_dim: self.head_dim };
        let position = inputs.position();
        let given = inputs.words("state")[StateWord::PromptLen as usize];
        let count = (given.saturating_sub(position) as usize).min(self.n_tokens);
        let pairs = [("k_cache", "k_rows"), ("v_cache", "v_rows")];
        let moved = pairs.map(|(ring, rows)| {
            let (ring_values, row_values) = (inputs.f32s(ring), inputs.f32s(rows));
            let (n, position) = (self.n_tokens, position as usize);
            let (written, values) = match self.way {
                WindowWay::ToRows => {
                    let mut values = row_values.to_vec();
                    to_rows(ring_values, &mut values, &shape, n, position);
                    (rows, values)
                }
                WindowWay::ToRing => {
                    let mut values = ring_values.to_vec();
                    to_ring(row_values, &mut values, &shape, n, position, count);
                    (ring, values)
                }
            };
            (written, Expected::exact(&values))
        });
        inputs.reals(moved)
    }
}
