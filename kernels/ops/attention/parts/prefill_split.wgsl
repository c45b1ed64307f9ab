// The keys of a block of a prefill's rows are dealt out to several workgroups; a second stage combines what
// they leave. A share is whole runs of 64 keys, so a short sequence uses few of the splits.
// import: attention/parts/prefill_rows, format/store_four
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

// Splits at work on a block's keys.
fn splits_of_keys(keys: vec2<u32>) -> u32 { return (keys.y - keys.x + keys_a_split(keys) - 1u) / keys_a_split(keys); }

fn keys_of_row(row: u32) -> vec2<u32> {
    let first = row / block_rows() * block_rows();
    return block_keys(first, min(first + block_rows(), N_TOKENS * Q_PER_KV) - 1u);
}

// The second stage counts rows on through the KV heads. What a single split makes is the result already.
fn splits_to_combine(row: u32) -> u32 {
    let used = splits_of_keys(keys_of_row(row % (N_TOKENS * Q_PER_KV)));
    return select(used, 0u, used == 1u);
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

fn sum_factor(keys: vec2<u32>, norm: f32) -> f32 { return select(1.0, 1.0 / norm, splits_of_keys(keys) == 1u); }

fn keep_top(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, top: vec2<f32>) {
    if (splits_of_keys(keys) > 1u) { tops[partial_of(kv_head * N_TOKENS * Q_PER_KV + row, split)] = top; }
}

fn keep_four(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, four: u32, value: vec4<f32>) {
    if (splits_of_keys(keys) > 1u) {
        partials[partial_of(kv_head * N_TOKENS * Q_PER_KV + row, split) * (HEAD_DIM / 4u) + four] = value;
    } else {
        store_four(prefill_output(kv_head, row) + four, value);
    }
}
