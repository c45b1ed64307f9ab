// The keys of a block of a prefill's rows are dealt out to several workgroups; a second stage combines what they
// leave. A keys_a_split is whole runs of 64 keys, so a short sequence uses few of the splits.
// import: attention/parts/prefill_rows
// requires: override HEAD_DIM: u32
// requires: override KV_HEADS: u32
// requires: override KV_SIZE: u32
// requires: override N_TOKENS: u32
// requires: override Q_PER_KV: u32
// requires: var partials: array<vec4<f32>>
// requires: var tops: array<vec2<f32>>
// requires: fn block_rows() -> u32
override SPLITS: u32 = 8u;

const SHARE_UNIT: u32 = 64u;

fn combined_rows() -> u32 { return KV_HEADS * N_TOKENS * Q_PER_KV; }

// The bounds are those of the scratch memory (attention_prefill/mod.rs).
fn splits() -> u32 {
    let most = min(2097152u / (combined_rows() * HEAD_DIM), (KV_SIZE + SHARE_UNIT - 1u) / SHARE_UNIT);
    return clamp(SPLITS, 1u, max(most, 1u));
}

// Keys of a split.
fn keys_a_split(keys: vec2<u32>) -> u32 {
    let units = (keys.y - keys.x + SHARE_UNIT - 1u) / SHARE_UNIT;
    return (units + splits() - 1u) / splits() * SHARE_UNIT;
}

// Those of one split of a block's keys: none where keys are few.
fn split_keys(keys: vec2<u32>, split: u32) -> vec2<u32> {
    let begin = min(keys.x + split * keys_a_split(keys), keys.y);
    return vec2<u32>(begin, min(begin + keys_a_split(keys), keys.y));
}

// The second stage counts rows on through the KV heads.
fn used_splits_of(row: u32) -> u32 {
    let rows = N_TOKENS * Q_PER_KV;
    let first = row % rows / block_rows() * block_rows();
    let keys = block_keys(first, min(first + block_rows(), rows) - 1u);
    return (keys.y - keys.x + keys_a_split(keys) - 1u) / keys_a_split(keys);
}

fn row_output(row: u32) -> u32 {
    let rows = N_TOKENS * Q_PER_KV;
    return prefill_output(row / rows, row % rows);
}

// [KV head][split][row of the KV head]
fn partial_of(row: u32, split: u32) -> u32 {
    let rows = N_TOKENS * Q_PER_KV;
    return (row / rows * splits() + split) * rows + row % rows;
}

fn sum_factor(norm: f32) -> f32 { return 1.0; }

fn keep_top(kv_head: u32, row: u32, split: u32, top: vec2<f32>) {
    tops[partial_of(kv_head * N_TOKENS * Q_PER_KV + row, split)] = top;
}

fn keep_four(kv_head: u32, row: u32, split: u32, four: u32, value: vec4<f32>) {
    partials[partial_of(kv_head * N_TOKENS * Q_PER_KV + row, split) * (HEAD_DIM / 4u) + four] = value;
}
