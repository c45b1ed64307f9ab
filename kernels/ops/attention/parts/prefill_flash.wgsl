// Attention of a prompt's tokens as two matrix products in registers. A row is a query head of a token; a
// block has 16 * ROWS_EACH rows of one KV head. An invocation computes the scores of ROWS_EACH rows with
// four keys, then of the same rows every sixteenth vec4 of the output. prefill_whole or prefill_split says
// which keys of the block a workgroup takes, and where its results go. HEAD_DIM is whole chunks, at most 256.
// import: attention/parts/prefill_rows, attention/parts/softmax, grid, kv/chunk
// requires: var q: array<vec4<f32>>
// requires: fn keep_four(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, four: u32, value: vec4<f32>)
// requires: fn keep_top(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, top: vec2<f32>)
// requires: fn split_keys(keys: vec2<u32>, split: u32) -> vec2<u32>
// requires: fn splits() -> u32
// requires: fn sum_factor(keys: vec2<u32>, norm: f32) -> f32
override SCALE: f32;
override ROWS_EACH: u32 = 2u; // 1, 2 or 4

const SIDE: u32 = 16u;
const WG: u32 = 256u; // SIDE * SIDE
const FLASH_KEYS: u32 = 64u; // 4 * SIDE
const FLASH_SLICE: u32 = 8u; // fours of Q and K at a time
const K_STRIDE: u32 = 9u; // of a row of a slice: neighbours do not share banks
const FLASH_WEIGHT_STRIDE: u32 = 17u; // FLASH_KEYS / 4 and one

override QUERY_SLOTS: u32 = SIDE * ROWS_EACH * K_STRIDE;
override WEIGHT_SLOTS: u32 = SIDE * ROWS_EACH * FLASH_WEIGHT_STRIDE;
override TOP_SLOTS: u32 = SIDE * ROWS_EACH * SIDE;
var<workgroup> queries: array<vec4<f32>, QUERY_SLOTS>;
// A slice of K, FLASH_KEYS rows of K_STRIDE, or of V, value_keys() rows of a whole head.
var<workgroup> staged: array<vec4<f32>, 1024>;
var<workgroup> flash_weights: array<vec4<f32>, WEIGHT_SLOTS>;
var<workgroup> flash_tops: array<f32, TOP_SLOTS>;

fn fours() -> u32 { return HEAD_DIM / 4u; }

// Keys whose values are staged at once: a power of two that divides FLASH_KEYS.
fn value_keys() -> u32 {
    if (fours() <= 16u) { return 64u; }
    return select(16u, 32u, fours() <= 32u);
}

fn block_rows() -> u32 { return SIDE * ROWS_EACH; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let blocks = (N_TOKENS * Q_PER_KV + block_rows() - 1u) / block_rows();
    let group = group_index(workgroup, groups);
    if (group >= KV_HEADS * splits() * blocks) { return; }
    let kv_head = group % KV_HEADS;
    let split = group / KV_HEADS % splits();
    let first_row = (blocks - 1u - group / KV_HEADS / splits()) * block_rows();
    let last_row = min(first_row + block_rows(), N_TOKENS * Q_PER_KV) - 1u;
    let keys = block_keys(first_row, last_row);
    let own_keys = split_keys(keys, split);
    let begin = own_keys.x;
    let end = own_keys.y;
    if (begin >= end) { return; }
    let per_chunk = chunk_fours();
    let chunks = fours() / per_chunk;
    let cache = kv_head * KV_SIZE * vector_chunks();
    // Rows across + SIDE * i; keys 4 * down + j; fours down + SIDE * f.
    let across = lid / SIDE;
    let down = lid % SIDE;

    var slots: array<vec2<u32>, 4>;
    var most: array<f32, 4>;
    var norm: array<f32, 4>;
    var sum: array<vec4<f32>, 16>;
    for (var i = 0u; i < ROWS_EACH; i++) {
        slots[i] = query_slots(min(first_row + across + SIDE * i, last_row) / Q_PER_KV);
        most[i] = LOWEST;
        norm[i] = 0.0;
    }
    for (var i = 0u; i < 16u; i++) { sum[i] = vec4<f32>(0.0); }

    for (var tile = begin; tile < end; tile += FLASH_KEYS) {
        // Scores: one component a key.
        var score: array<vec4<f32>, 4>;
        for (var i = 0u; i < ROWS_EACH; i++) { score[i] = vec4<f32>(0.0); }
        for (var slice = 0u; slice < fours(); slice += FLASH_SLICE) {
            workgroupBarrier();
            for (var i = lid; i < block_rows() * FLASH_SLICE; i += WG) {
                let row = min(first_row + i / FLASH_SLICE, last_row);
                let four = slice + i % FLASH_SLICE;
                let at = query_start(row / Q_PER_KV, kv_head * Q_PER_KV + row % Q_PER_KV) / 4u;
                var v = vec4<f32>(0.0);
                if (four < fours()) { v = SCALE * LOG2_E * q[at + four]; }
                queries[i / FLASH_SLICE * K_STRIDE + i % FLASH_SLICE] = v;
            }
            let slice_chunks = FLASH_SLICE / per_chunk;
            for (var i = lid; i < FLASH_KEYS * slice_chunks; i += WG) {
                let key = i / slice_chunks;
                let c = slice / per_chunk + i % slice_chunks;
                let t = min(tile + key, end - 1u);
                let chunk = k_chunk(cache + t * vector_chunks(), min(c, chunks - 1u));
                // Key 4 * d + j lies at SIDE * j + d: what neighbours read at once is adjacent.
                let at = (key % 4u * SIDE + key / 4u) * K_STRIDE + i % slice_chunks * per_chunk;
                for (var p = 0u; p < per_chunk; p++) {
                    staged[at + p] = select(vec4<f32>(0.0), chunk_four(chunk, p), c < chunks);
                }
            }
            workgroupBarrier();
            for (var f = 0u; f < FLASH_SLICE; f++) {
                let k0 = staged[down * K_STRIDE + f];
                let k1 = staged[(SIDE + down) * K_STRIDE + f];
                let k2 = staged[(2u * SIDE + down) * K_STRIDE + f];
                let k3 = staged[(3u * SIDE + down) * K_STRIDE + f];
                for (var i = 0u; i < ROWS_EACH; i++) {
                    let v = queries[(across + SIDE * i) * K_STRIDE + f];
                    score[i] += vec4<f32>(dot(v, k0), dot(v, k1), dot(v, k2), dot(v, k3));
                }
            }
        }

        // Softmax: the largest score of a row, then weights.
        let t = vec4<u32>(tile + 4u * down) + vec4<u32>(0u, 1u, 2u, 3u);
        for (var i = 0u; i < ROWS_EACH; i++) {
            let live = (t >= vec4<u32>(slots[i].x)) & (t < vec4<u32>(slots[i].y));
            score[i] = select(vec4<f32>(LOWEST), score[i], live);
            let two = max(score[i].xy, score[i].zw);
            flash_tops[(across + SIDE * i) * SIDE + down] = max(two.x, two.y);
        }
        workgroupBarrier();
        for (var i = 0u; i < ROWS_EACH; i++) {
            var top = most[i];
            for (var j = 0u; j < SIDE; j++) { top = max(top, flash_tops[(across + SIDE * i) * SIDE + j]); }
            let decay = exp2(most[i] - top);
            most[i] = top;
            let live = (t >= vec4<u32>(slots[i].x)) & (t < vec4<u32>(slots[i].y));
            let weight = select(vec4<f32>(0.0), exp2(score[i] - vec4<f32>(top)), live);
            norm[i] = norm[i] * decay + (weight.x + weight.y) + (weight.z + weight.w);
            for (var f = 0u; f < 4u; f++) { sum[4u * i + f] *= decay; }
            flash_weights[(across + SIDE * i) * FLASH_WEIGHT_STRIDE + down] = weight;
        }

        // Values.
        for (var some = 0u; some < FLASH_KEYS; some += value_keys()) {
            workgroupBarrier();
            for (var i = lid; i < value_keys() * chunks; i += WG) {
                let key = i / chunks;
                let slot = min(tile + some + key, end - 1u);
                let chunk = v_chunk(cache + slot * vector_chunks(), i % chunks);
                for (var p = 0u; p < per_chunk; p++) { staged[i * per_chunk + p] = chunk_four(chunk, p); }
            }
            workgroupBarrier();
            for (var key = 0u; key < value_keys(); key += 4u) {
                var w: array<vec4<f32>, 4>;
                for (var i = 0u; i < ROWS_EACH; i++) {
                    w[i] = flash_weights[(across + SIDE * i) * FLASH_WEIGHT_STRIDE + (some + key) / 4u];
                }
                for (var f = 0u; f * SIDE < fours(); f++) {
                    let at = key * fours() + min(down + SIDE * f, fours() - 1u);
                    let v0 = staged[at];
                    let v1 = staged[at + fours()];
                    let v2 = staged[at + 2u * fours()];
                    let v3 = staged[at + 3u * fours()];
                    for (var i = 0u; i < ROWS_EACH; i++) {
                        sum[4u * i + f] += w[i].x * v0 + w[i].y * v1 + w[i].z * v2 + w[i].w * v3;
                    }
                }
            }
        }
    }

    // Each invocation has summed the weights of its own keys.
    workgroupBarrier();
    for (var i = 0u; i < ROWS_EACH; i++) { flash_tops[(across + SIDE * i) * SIDE + down] = norm[i]; }
    workgroupBarrier();
    for (var i = 0u; i < ROWS_EACH; i++) {
        let row = first_row + across + SIDE * i;
        if (row <= last_row) {
            var total = 0.0;
            for (var j = 0u; j < SIDE; j++) { total += flash_tops[(across + SIDE * i) * SIDE + j]; }
            let factor = sum_factor(keys, total);
            if (down == 0u) { keep_top(keys, kv_head, row, split, vec2<f32>(most[i], total)); }
            for (var f = 0u; f * SIDE < fours(); f++) {
                let four = down + SIDE * f;
                if (four < fours()) { keep_four(keys, kv_head, row, split, four, factor * sum[4u * i + f]); }
            }
        }
    }
}
