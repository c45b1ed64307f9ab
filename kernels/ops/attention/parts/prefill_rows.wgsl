// Where the rows of a prefill's queries lie and what they attend to. A row is a query head of a
// token: row r of a KV head is head r % Q_PER_KV of its group for query r / Q_PER_KV.
// requires: var state: array<u32>
override N_TOKENS: u32;
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override WINDOW: u32;
override Q_ROW: u32;
override BEFORE: u32;

fn heads() -> u32 { return KV_HEADS * Q_PER_KV; }

// First element of a head of a query in q.
fn query_start(query: u32, head: u32) -> u32 {
    let row = heads() + select(0u, 2u * KV_HEADS, Q_ROW == ROW_QKV);
    return (query * row + head) * HEAD_DIM;
}

// The slots that query i attends to: the first, and the one past the last. Queries beyond the prompt, where a
// chunk is not full, attend to what its last token does.
fn query_slots(i: u32) -> vec2<u32> {
    let position = state[POSITION];
    let count = clamp(max(state[PROMPT_LEN], position) - position, 1u, N_TOKENS);
    let last = min(select(position, BEFORE, BEFORE > 0u) + min(i, count - 1u), KV_SIZE - 1u);
    // Slots before the first token of the sequence hold nothing.
    let first = min(BEFORE - min(position, BEFORE), last);
    if (WINDOW == 0u) { return vec2<u32>(first, last + 1u); }
    return vec2<u32>(max(first, last + 1u - min(last + 1u, WINDOW)), last + 1u);
}

// The keys of rows first..=last of a KV head: what any of them attends to.
fn block_keys(first: u32, last: u32) -> vec2<u32> {
    return vec2<u32>(query_slots(first / Q_PER_KV).x, query_slots(last / Q_PER_KV).y);
}

// The four of y at which row `row` of a KV head begins.
fn prefill_output(kv_head: u32, row: u32) -> u32 {
    return (row / Q_PER_KV * heads() + kv_head * Q_PER_KV + row % Q_PER_KV) * (HEAD_DIM / 4u);
}
