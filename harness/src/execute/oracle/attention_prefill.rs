//! `attention_prefill`: rows of q with or without K and V beside them, queries spread over threads.

use lathe_reference::attention_prefill::{Prefill, attention_prefill as reference};
use rayon::prelude::*;

use super::{Inputs, Outcomes, cache_shape, join};

/// What the queries of `q` find in the caches.
pub(super) fn attention_prefill(inputs: &Inputs<'_>) -> Outcomes {
    const QUERIES_A_TASK: usize = 8;
    let s = inputs.shape();
    let cache = cache_shape(s);
    let heads = cache.kv_heads * s.dim("GROUP");
    let others = if s.dim("ROW") == 1 { 2 * cache.kv_heads } else { 0 };
    let rows = inputs.f32s("q").chunks((heads + others) * cache.head_dim).take(s.dim("M"));
    let queries: Vec<&[f32]> = rows.map(|row| &row[..heads * cache.head_dim]).collect();
    let (k, v) = (inputs.f32s("k_cache"), inputs.f32s("v_cache"));
    let position = inputs.position() as usize;
    let tasks = queries.par_chunks(QUERIES_A_TASK).enumerate();
    let parts: Vec<_> = tasks
        .map(|(i, queries)| {
            let prefill = Prefill {
                heads,
                scale: s.float("SCALE") as f32,
                first: position + i * QUERIES_A_TASK,
                window: Some(s.dim("WINDOW")).filter(|w| *w > 0),
            };
            reference(queries, k, v, &cache, &prefill)
        })
        .collect();
    inputs.real("y", join(parts))
}
