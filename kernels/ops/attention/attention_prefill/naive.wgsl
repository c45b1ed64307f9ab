// attention_prefill/naive: one invocation sixteen elements of a head, two passes over the keys.
//
//   y[i][h] = sum_t softmax_t(SCALE * q[i][h] . K[g][t]) * V[g][t]      i < N_TOKENS, g = h / Q_PER_KV
//   q: N_TOKENS rows of heads (Q_ROW q) or of heads and their KV heads (Q_ROW qkv), HEAD_DIM each, f32
//   y: (N_TOKENS, heads, HEAD_DIM), f32 or f16      caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//   query i stands in slot p = min(position + i, KV_SIZE - 1), or BEFORE + i where BEFORE slots hold what
//   came before; t runs over the slots of tokens up to p, with a window only over the last WINDOW of them
//
// Idea: the formula. Every invocation computes all scores of its query, once for the largest and
// again for the weights.
// import: attention/parts/prefill_rows, format/store_pair, grid, kv/scalar
// HEAD_DIM is even.
override ACT_FORMAT: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

fn score(query: u32, k: u32) -> f32 {
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += q[query + d] * k_at(k + d); }
    return SCALE * sum;
}

const COLUMNS: u32 = 16u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let pieces = (HEAD_DIM + COLUMNS - 1u) / COLUMNS;
    let i = group_index(workgroup, groups) * WG + lid;
    let row = i / pieces;
    if (row >= N_TOKENS * heads()) { return; }
    let head = row % heads();
    let first = i % pieces * COLUMNS;
    let count = min(COLUMNS, HEAD_DIM - first);
    let query = query_start(row / heads(), head);
    let slots = query_slots(row / heads());
    let cache = (head / Q_PER_KV) * KV_SIZE * HEAD_DIM;
    var most = score(query, cache + slots.x * HEAD_DIM);
    for (var t = slots.x + 1u; t < slots.y; t++) {
        most = max(most, score(query, cache + t * HEAD_DIM));
    }
    var norm = 0.0;
    var sum: array<f32, COLUMNS>;
    for (var e = 0u; e < COLUMNS; e++) { sum[e] = 0.0; }
    for (var t = slots.x; t < slots.y; t++) {
        let p = exp(score(query, cache + t * HEAD_DIM) - most);
        norm += p;
        for (var e = 0u; e < count; e++) {
            sum[e] += p * v_at(cache + t * HEAD_DIM + first + e);
        }
    }
    for (var e = 0u; e < count; e += 2u) {
        store_pair(row * HEAD_DIM + first + e, vec2<f32>(sum[e], sum[e + 1u]) / norm, true);
    }
}
