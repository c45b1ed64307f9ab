//! Rows of q with or without K and V in the same row, queries spread over threads.

use lathe_kernels::StateWord;
use lathe_kernels::attention::Heads;
use lathe_kernels::attention_prefill::AttentionPrefill;
use lathe_reference::Expected;
use lathe_reference::attention_prefill::{Prefill, attention_prefill};
use rayon::prelude::*;

use super::{Inputs, Oracle, Outcomes, cache};

impl Oracle for AttentionPrefill {
    fn expected(&self, inputs: &Inputs<'_>) -> Outcomes {
        const QUERIES_A_TASK: usize = 8;
        let shape = cache::shape(self);
        let (heads, d) = (self.q_heads(), self.head_dim);
        let rows = inputs.f32s("q").chunks(self.row_elements()).take(self.n_tokens);
        let queries: Vec<&[f32]> = rows.map(|row| &row[..heads * d]).collect();
        let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
        let position = inputs.position() as usize;
        let given = inputs.words("state")[StateWord::PromptLen as usize] as usize;
        let (first, oldest) = self.slots(position);
        // Queries beyond the prompt attend to what its last token does.
        let (count, last) = (self.count(position, given), self.kv_size - 1);
        let tasks = queries.par_chunks(QUERIES_A_TASK).enumerate();
        let parts: Vec<_> = tasks
            .map(|(i, queries)| {
                let prefill = Prefill {
                    heads,
                    scale: self.scale,
                    first: first + i * QUERIES_A_TASK,
                    last: last.min(first + count - 1),
                    oldest,
                    window: Some(self.window).filter(|w| *w > 0),
                };
                attention_prefill(queries, k, v, &shape, &prefill)
            })
            .collect();
        inputs.real("y", Expected::join(parts))
    }
}
