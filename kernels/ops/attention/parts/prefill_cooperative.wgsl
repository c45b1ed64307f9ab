// Attention of a prompt's tokens on 16 x 16 matrix units: blocks of 32 * ROW_BLOCKS rows of one KV head
// against tiles of 32 keys. A row is a query head of a token. Which of the block's keys are this workgroup's
// and where its results go is its neighbour's to say. HEAD_DIM is 64, 128 or 256.
// import: attention/parts/prefill_rows, attention/parts/softmax, grid, kv/chunk
// requires: var q: array<vec4<f32>>
// requires: fn keep_four(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, four: u32, value: vec4<f32>)
// requires: fn keep_top(keys: vec2<u32>, kv_head: u32, row: u32, split: u32, top: vec2<f32>)
// requires: fn split_keys(keys: vec2<u32>, split: u32) -> vec2<u32>
// requires: fn splits() -> u32
// requires: fn sum_factor(keys: vec2<u32>, norm: f32) -> f32
override SCALE: f32;
override SG: u32 = 32u; // the adapter's only subgroup size
override ROW_BLOCKS: u32 = 2u; // of 32 rows

alias FragmentA = coop_mat16x16<f16, A>;
alias FragmentB = coop_mat16x16<f16, B>;
alias FragmentC = coop_mat16x16<f32, C>;

const MATRIX_KEYS: u32 = 32u;
const SCORE_STRIDE: u32 = 9u; // fours of a row of scores: MATRIX_KEYS and one
const MATRIX_WEIGHT_STRIDE: u32 = 10u; // fours of a row of weights: MATRIX_KEYS and two
const LEFT_BEHIND: f32 = 8.0; // weights up to 2^8, well inside f16

override COLUMN_BLOCKS: u32 = HEAD_DIM / 64u;
override ROWS: u32 = 32u * ROW_BLOCKS;
override WG: u32 = ROW_BLOCKS * COLUMN_BLOCKS * SG;
override HEAD_STRIDE: u32 = HEAD_DIM / 4u + 2u;
// Queries once, then keys and values, beside each other where there is room for both; and the weights.
// Fragments are loaded from multiples of 16 bytes, and nothing in WGSL says where a variable of smaller
// elements begins: so there is one of f16, and all others have whole 16 bytes.
override WEIGHTS_AT: u32 = ROWS * HEAD_STRIDE;
override TILE_SLOTS: u32 = WEIGHTS_AT + ROWS * MATRIX_WEIGHT_STRIDE;
override VALUES_AT: u32 = select(0u, MATRIX_KEYS * HEAD_STRIDE, ROWS >= 2u * MATRIX_KEYS);
override SCORE_SLOTS: u32 = COLUMN_BLOCKS * ROWS * SCORE_STRIDE;
var<workgroup> head_tile: array<vec4<f16>, TILE_SLOTS>;
var<workgroup> block_scores: array<vec4<f32>, SCORE_SLOTS>;
var<workgroup> row_factors: array<f32, ROWS>;
var<workgroup> left_behind: vec4<u32>;

fn block_rows() -> u32 { return ROWS; }

// Chunks of a tile.
fn tile_chunks() -> u32 { return MATRIX_KEYS * HEAD_DIM / (4u * chunk_fours()); }

// Chunk i of the keys or values of slots `first`.. of a KV head; zero from `end` on, whatever lies there: it
// must not reach the sums, not even times 0.
fn fetch_chunk(cache: u32, values: bool, first: u32, end: u32, i: u32) -> vec4<u32> {
    let chunks = HEAD_DIM / (4u * chunk_fours());
    let slot = first + i / chunks;
    if (i >= tile_chunks() || slot >= end) { return vec4<u32>(0u); }
    let vector = cache + slot * vector_chunks();
    if (values) { return v_chunk(vector, i % chunks); }
    return k_chunk(vector, i % chunks);
}

fn stage_chunk(values: bool, i: u32, chunk: vec4<u32>) {
    if (i >= tile_chunks()) { return; }
    let per_chunk = chunk_fours();
    let chunks = HEAD_DIM / (4u * per_chunk);
    let to = select(0u, VALUES_AT, values) + i / chunks * HEAD_STRIDE + i % chunks * per_chunk;
    for (var p = 0u; p < per_chunk; p++) { head_tile[to + p] = vec4<f16>(chunk_four(chunk, p)); }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let all_rows = N_TOKENS * Q_PER_KV;
    let blocks = (all_rows + ROWS - 1u) / ROWS;
    // A workgroup beyond the last one repeats it. Blocks with most keys start first.
    let group = min(group_index(workgroup, groups), KV_HEADS * splits() * blocks - 1u);
    let kv_head = group % KV_HEADS;
    let split = group / KV_HEADS % splits();
    let first_row = (blocks - 1u - group / KV_HEADS / splits()) * ROWS;
    let last_row = min(first_row + ROWS, all_rows) - 1u;
    let keys = block_keys(first_row, last_row);
    let own_keys = split_keys(keys, split);
    let begin = own_keys.x;
    let end = own_keys.y;
    // One past the last row whose result is kept: a split without keys has none.
    let end_row = select(first_row, last_row + 1u, begin < end);
    let cache = kv_head * KV_SIZE * vector_chunks();
    let row_block = subgroup / COLUMN_BLOCKS;
    let column_block = subgroup % COLUMN_BLOCKS;

    for (var i = lid; i < ROWS * HEAD_DIM / 4u; i += WG) {
        let row = min(first_row + i / (HEAD_DIM / 4u), last_row);
        let at = query_start(row / Q_PER_KV, kv_head * Q_PER_KV + row % Q_PER_KV) / 4u;
        let four = i % (HEAD_DIM / 4u);
        head_tile[i / (HEAD_DIM / 4u) * HEAD_STRIDE + four] = vec4<f16>(SCALE * LOG2_E * q[at + four]);
    }
    workgroupBarrier();
    let own_rows = row_block * 32u;
    let own_queries = own_rows * HEAD_STRIDE + column_block * 16u;
    let q00 = coopLoadT<FragmentA>(&head_tile[own_queries], HEAD_STRIDE);
    let q01 = coopLoadT<FragmentA>(&head_tile[own_queries + 4u], HEAD_STRIDE);
    let q02 = coopLoadT<FragmentA>(&head_tile[own_queries + 8u], HEAD_STRIDE);
    let q03 = coopLoadT<FragmentA>(&head_tile[own_queries + 12u], HEAD_STRIDE);
    let q10 = coopLoadT<FragmentA>(&head_tile[own_queries + 16u * HEAD_STRIDE], HEAD_STRIDE);
    let q11 = coopLoadT<FragmentA>(&head_tile[own_queries + 16u * HEAD_STRIDE + 4u], HEAD_STRIDE);
    let q12 = coopLoadT<FragmentA>(&head_tile[own_queries + 16u * HEAD_STRIDE + 8u], HEAD_STRIDE);
    let q13 = coopLoadT<FragmentA>(&head_tile[own_queries + 16u * HEAD_STRIDE + 12u], HEAD_STRIDE);
    var o00 = FragmentC();
    var o01 = FragmentC();
    var o02 = FragmentC();
    var o03 = FragmentC();
    var o10 = FragmentC();
    var o11 = FragmentC();
    var o12 = FragmentC();
    var o13 = FragmentC();

    // A row of scores belongs to COLUMN_BLOCKS neighbouring lanes.
    let thread = subgroup * SG + lane;
    let row = thread / COLUMN_BLOCKS;
    let part = thread % COLUMN_BLOCKS;
    let slots = query_slots(min(first_row + row, last_row) / Q_PER_KV);
    let fours = MATRIX_KEYS / 4u / COLUMN_BLOCKS;
    var reference = LOWEST;
    var norm = 0.0;
    let own_scores = (column_block * ROWS + own_rows) * SCORE_STRIDE;
    let own_weights = WEIGHTS_AT + own_rows * MATRIX_WEIGHT_STRIDE;
    // What a subgroup alone stores sums to: its 32 rows of scores. naga 30 evaluates what is written inside
    // coopStoreT, the matrix and the index, after the store: both need names before.
    let own_sums = subgroup * 32u * SCORE_STRIDE;

    // A tile's keys and values are on their way while the one before is multiplied; what eight chunks an
    // invocation do not cover is not fetched ahead.
    var next_k0 = fetch_chunk(cache, false, begin, end, lid);
    var next_k1 = fetch_chunk(cache, false, begin, end, lid + 1u * WG);
    var next_k2 = fetch_chunk(cache, false, begin, end, lid + 2u * WG);
    var next_k3 = fetch_chunk(cache, false, begin, end, lid + 3u * WG);
    var next_k4 = fetch_chunk(cache, false, begin, end, lid + 4u * WG);
    var next_k5 = fetch_chunk(cache, false, begin, end, lid + 5u * WG);
    var next_k6 = fetch_chunk(cache, false, begin, end, lid + 6u * WG);
    var next_k7 = fetch_chunk(cache, false, begin, end, lid + 7u * WG);
    var next_v0 = fetch_chunk(cache, true, begin, end, lid);
    var next_v1 = fetch_chunk(cache, true, begin, end, lid + 1u * WG);
    var next_v2 = fetch_chunk(cache, true, begin, end, lid + 2u * WG);
    var next_v3 = fetch_chunk(cache, true, begin, end, lid + 3u * WG);
    var next_v4 = fetch_chunk(cache, true, begin, end, lid + 4u * WG);
    var next_v5 = fetch_chunk(cache, true, begin, end, lid + 5u * WG);
    var next_v6 = fetch_chunk(cache, true, begin, end, lid + 6u * WG);
    var next_v7 = fetch_chunk(cache, true, begin, end, lid + 7u * WG);
    for (var first = begin; first < end; first += MATRIX_KEYS) {
        // Everyone is done with the tile before.
        workgroupBarrier();
        stage_chunk(false, lid, next_k0);
        if (1u * WG < tile_chunks()) { stage_chunk(false, lid + 1u * WG, next_k1); }
        if (2u * WG < tile_chunks()) { stage_chunk(false, lid + 2u * WG, next_k2); }
        if (3u * WG < tile_chunks()) { stage_chunk(false, lid + 3u * WG, next_k3); }
        if (4u * WG < tile_chunks()) { stage_chunk(false, lid + 4u * WG, next_k4); }
        if (5u * WG < tile_chunks()) { stage_chunk(false, lid + 5u * WG, next_k5); }
        if (6u * WG < tile_chunks()) { stage_chunk(false, lid + 6u * WG, next_k6); }
        if (7u * WG < tile_chunks()) { stage_chunk(false, lid + 7u * WG, next_k7); }
        for (var i = lid + 8u * WG; i < tile_chunks(); i += WG) {
            stage_chunk(false, i, fetch_chunk(cache, false, first, end, i));
        }
        if (VALUES_AT > 0u) {
            stage_chunk(true, lid, next_v0);
            if (1u * WG < tile_chunks()) { stage_chunk(true, lid + 1u * WG, next_v1); }
            if (2u * WG < tile_chunks()) { stage_chunk(true, lid + 2u * WG, next_v2); }
            if (3u * WG < tile_chunks()) { stage_chunk(true, lid + 3u * WG, next_v3); }
            if (4u * WG < tile_chunks()) { stage_chunk(true, lid + 4u * WG, next_v4); }
            if (5u * WG < tile_chunks()) { stage_chunk(true, lid + 5u * WG, next_v5); }
            if (6u * WG < tile_chunks()) { stage_chunk(true, lid + 6u * WG, next_v6); }
            if (7u * WG < tile_chunks()) { stage_chunk(true, lid + 7u * WG, next_v7); }
            for (var i = lid + 8u * WG; i < tile_chunks(); i += WG) {
                stage_chunk(true, i, fetch_chunk(cache, true, first, end, i));
            }
        }
        if (lid == 0u) { left_behind = vec4<u32>(0u); }
        workgroupBarrier();
        next_k0 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid);
        if (1u * WG < tile_chunks()) { next_k1 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 1u * WG); }
        if (2u * WG < tile_chunks()) { next_k2 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 2u * WG); }
        if (3u * WG < tile_chunks()) { next_k3 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 3u * WG); }
        if (4u * WG < tile_chunks()) { next_k4 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 4u * WG); }
        if (5u * WG < tile_chunks()) { next_k5 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 5u * WG); }
        if (6u * WG < tile_chunks()) { next_k6 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 6u * WG); }
        if (7u * WG < tile_chunks()) { next_k7 = fetch_chunk(cache, false, first + MATRIX_KEYS, end, lid + 7u * WG); }
        if (VALUES_AT > 0u) {
            next_v0 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid);
            if (1u * WG < tile_chunks()) { next_v1 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 1u * WG); }
            if (2u * WG < tile_chunks()) { next_v2 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 2u * WG); }
            if (3u * WG < tile_chunks()) { next_v3 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 3u * WG); }
            if (4u * WG < tile_chunks()) { next_v4 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 4u * WG); }
            if (5u * WG < tile_chunks()) { next_v5 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 5u * WG); }
            if (6u * WG < tile_chunks()) { next_v6 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 6u * WG); }
            if (7u * WG < tile_chunks()) { next_v7 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 7u * WG); }
        }
        var s00 = FragmentC();
        var s01 = FragmentC();
        var s10 = FragmentC();
        var s11 = FragmentC();
        let k00 = coopLoad<FragmentB>(&head_tile[column_block * 16u], HEAD_STRIDE);
        s00 = coopMultiplyAdd(q00, k00, s00);
        s10 = coopMultiplyAdd(q10, k00, s10);
        let k01 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 16u * HEAD_STRIDE], HEAD_STRIDE);
        s01 = coopMultiplyAdd(q00, k01, s01);
        s11 = coopMultiplyAdd(q10, k01, s11);
        let k10 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 4u], HEAD_STRIDE);
        s00 = coopMultiplyAdd(q01, k10, s00);
        s10 = coopMultiplyAdd(q11, k10, s10);
        let k11 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 16u * HEAD_STRIDE + 4u], HEAD_STRIDE);
        s01 = coopMultiplyAdd(q01, k11, s01);
        s11 = coopMultiplyAdd(q11, k11, s11);
        let k20 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 8u], HEAD_STRIDE);
        s00 = coopMultiplyAdd(q02, k20, s00);
        s10 = coopMultiplyAdd(q12, k20, s10);
        let k21 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 16u * HEAD_STRIDE + 8u], HEAD_STRIDE);
        s01 = coopMultiplyAdd(q02, k21, s01);
        s11 = coopMultiplyAdd(q12, k21, s11);
        let k30 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 12u], HEAD_STRIDE);
        s00 = coopMultiplyAdd(q03, k30, s00);
        s10 = coopMultiplyAdd(q13, k30, s10);
        let k31 = coopLoad<FragmentB>(&head_tile[column_block * 16u + 16u * HEAD_STRIDE + 12u], HEAD_STRIDE);
        s01 = coopMultiplyAdd(q03, k31, s01);
        s11 = coopMultiplyAdd(q13, k31, s11);
        let place1 = own_scores;
        let sums1 = s00;
        coopStoreT(sums1, &block_scores[place1], SCORE_STRIDE);
        let place2 = own_scores + 4u;
        let sums2 = s01;
        coopStoreT(sums2, &block_scores[place2], SCORE_STRIDE);
        let place3 = own_scores + 16u * SCORE_STRIDE;
        let sums3 = s10;
        coopStoreT(sums3, &block_scores[place3], SCORE_STRIDE);
        let place4 = own_scores + 16u * SCORE_STRIDE + 4u;
        let sums4 = s11;
        coopStoreT(sums4, &block_scores[place4], SCORE_STRIDE);
        workgroupBarrier();

        // Values take the place of the keys where there is no other.
        if (VALUES_AT == 0u) {
            stage_chunk(true, lid, next_v0);
            if (1u * WG < tile_chunks()) { stage_chunk(true, lid + 1u * WG, next_v1); }
            if (2u * WG < tile_chunks()) { stage_chunk(true, lid + 2u * WG, next_v2); }
            if (3u * WG < tile_chunks()) { stage_chunk(true, lid + 3u * WG, next_v3); }
            if (4u * WG < tile_chunks()) { stage_chunk(true, lid + 4u * WG, next_v4); }
            if (5u * WG < tile_chunks()) { stage_chunk(true, lid + 5u * WG, next_v5); }
            if (6u * WG < tile_chunks()) { stage_chunk(true, lid + 6u * WG, next_v6); }
            if (7u * WG < tile_chunks()) { stage_chunk(true, lid + 7u * WG, next_v7); }
            for (var i = lid + 8u * WG; i < tile_chunks(); i += WG) {
                stage_chunk(true, i, fetch_chunk(cache, true, first, end, i));
            }
            next_v0 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid);
            if (1u * WG < tile_chunks()) { next_v1 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 1u * WG); }
            if (2u * WG < tile_chunks()) { next_v2 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 2u * WG); }
            if (3u * WG < tile_chunks()) { next_v3 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 3u * WG); }
            if (4u * WG < tile_chunks()) { next_v4 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 4u * WG); }
            if (5u * WG < tile_chunks()) { next_v5 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 5u * WG); }
            if (6u * WG < tile_chunks()) { next_v6 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 6u * WG); }
            if (7u * WG < tile_chunks()) { next_v7 = fetch_chunk(cache, true, first + MATRIX_KEYS, end, lid + 7u * WG); }
        }
        var most = LOWEST;
        var row_scores: array<vec4<f32>, 8>;
        for (var f = 0u; f < fours; f++) {
            let four = part * fours + f;
            var score = vec4<f32>(0.0);
            for (var c = 0u; c < COLUMN_BLOCKS; c++) { score += block_scores[(c * ROWS + row) * SCORE_STRIDE + four]; }
            let t = vec4<u32>(first + 4u * four) + vec4<u32>(0u, 1u, 2u, 3u);
            let live = (t >= vec4<u32>(slots.x)) & (t < vec4<u32>(slots.y));
            score = select(vec4<f32>(LOWEST), score, live);
            row_scores[f] = score;
            most = max(most, max(max(score.x, score.y), max(score.z, score.w)));
        }
        if (COLUMN_BLOCKS > 1u) { most = max(most, subgroupShuffleXor(most, 1u)); }
        if (COLUMN_BLOCKS > 2u) { most = max(most, subgroupShuffleXor(most, 2u)); }
        var factor = 1.0;
        let is_behind = most > reference + LEFT_BEHIND || reference == LOWEST;
        if (is_behind) {
            factor = exp2(reference - max(most, reference));
            reference = max(most, reference);
            norm *= factor;
        }
        // The first tile has no sums yet. Each subgroup writes its own component.
        let any_behind = subgroupAny(is_behind && first > begin);
        if (lane == 0u && any_behind) { left_behind[subgroup % 4u] = 1u; }
        if (part == 0u) { row_factors[row] = factor; }
        for (var f = 0u; f < fours; f++) {
            let score = row_scores[f];
            let t = vec4<u32>(first + 4u * (part * fours + f)) + vec4<u32>(0u, 1u, 2u, 3u);
            let live = (t >= vec4<u32>(slots.x)) & (t < vec4<u32>(slots.y));
            let weight = select(vec4<f32>(0.0), exp2(score - vec4<f32>(reference)), live);
            norm += (weight.x + weight.y) + (weight.z + weight.w);
            head_tile[WEIGHTS_AT + row * MATRIX_WEIGHT_STRIDE + part * fours + f] = vec4<f16>(weight);
        }
        if (any(workgroupUniformLoad(&left_behind) > vec4<u32>(0u))) {
            let place5 = own_sums;
            let sums5 = o00;
            coopStoreT(sums5, &block_scores[place5], SCORE_STRIDE);
            let place6 = own_sums + 4u;
            let sums6 = o01;
            coopStoreT(sums6, &block_scores[place6], SCORE_STRIDE);
            let place7 = own_sums + 16u * SCORE_STRIDE;
            let sums7 = o10;
            coopStoreT(sums7, &block_scores[place7], SCORE_STRIDE);
            let place8 = own_sums + 16u * SCORE_STRIDE + 4u;
            let sums8 = o11;
            coopStoreT(sums8, &block_scores[place8], SCORE_STRIDE);
            workgroupBarrier();
            for (var i = lane; i < 256u; i += SG) {
                block_scores[own_sums + i / 8u * SCORE_STRIDE + i % 8u] *= row_factors[own_rows + i / 8u];
            }
            workgroupBarrier();
            o00 = coopLoadT<FragmentC>(&block_scores[own_sums], SCORE_STRIDE);
            o01 = coopLoadT<FragmentC>(&block_scores[own_sums + 4u], SCORE_STRIDE);
            o10 = coopLoadT<FragmentC>(&block_scores[own_sums + 16u * SCORE_STRIDE], SCORE_STRIDE);
            o11 = coopLoadT<FragmentC>(&block_scores[own_sums + 16u * SCORE_STRIDE + 4u], SCORE_STRIDE);
            let place9 = own_sums;
            let sums9 = o02;
            coopStoreT(sums9, &block_scores[place9], SCORE_STRIDE);
            let place10 = own_sums + 4u;
            let sums10 = o03;
            coopStoreT(sums10, &block_scores[place10], SCORE_STRIDE);
            let place11 = own_sums + 16u * SCORE_STRIDE;
            let sums11 = o12;
            coopStoreT(sums11, &block_scores[place11], SCORE_STRIDE);
            let place12 = own_sums + 16u * SCORE_STRIDE + 4u;
            let sums12 = o13;
            coopStoreT(sums12, &block_scores[place12], SCORE_STRIDE);
            workgroupBarrier();
            for (var i = lane; i < 256u; i += SG) {
                block_scores[own_sums + i / 8u * SCORE_STRIDE + i % 8u] *= row_factors[own_rows + i / 8u];
            }
            workgroupBarrier();
            o02 = coopLoadT<FragmentC>(&block_scores[own_sums], SCORE_STRIDE);
            o03 = coopLoadT<FragmentC>(&block_scores[own_sums + 4u], SCORE_STRIDE);
            o12 = coopLoadT<FragmentC>(&block_scores[own_sums + 16u * SCORE_STRIDE], SCORE_STRIDE);
            o13 = coopLoadT<FragmentC>(&block_scores[own_sums + 16u * SCORE_STRIDE + 4u], SCORE_STRIDE);
        }
        let w00 = coopLoadT<FragmentA>(&head_tile[own_weights], MATRIX_WEIGHT_STRIDE);
        let w10 = coopLoadT<FragmentA>(&head_tile[own_weights + 16u * MATRIX_WEIGHT_STRIDE], MATRIX_WEIGHT_STRIDE);
        let v00 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + column_block * 16u], HEAD_STRIDE);
        o00 = coopMultiplyAdd(w00, v00, o00);
        o10 = coopMultiplyAdd(w10, v00, o10);
        let v01 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + column_block * 16u + 4u], HEAD_STRIDE);
        o01 = coopMultiplyAdd(w00, v01, o01);
        o11 = coopMultiplyAdd(w10, v01, o11);
        let v02 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + column_block * 16u + 8u], HEAD_STRIDE);
        o02 = coopMultiplyAdd(w00, v02, o02);
        o12 = coopMultiplyAdd(w10, v02, o12);
        let v03 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + column_block * 16u + 12u], HEAD_STRIDE);
        o03 = coopMultiplyAdd(w00, v03, o03);
        o13 = coopMultiplyAdd(w10, v03, o13);
        let w01 = coopLoadT<FragmentA>(&head_tile[own_weights + 4u], MATRIX_WEIGHT_STRIDE);
        let w11 = coopLoadT<FragmentA>(&head_tile[own_weights + 16u * MATRIX_WEIGHT_STRIDE + 4u], MATRIX_WEIGHT_STRIDE);
        let v10 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + 16u * HEAD_STRIDE + column_block * 16u], HEAD_STRIDE);
        o00 = coopMultiplyAdd(w01, v10, o00);
        o10 = coopMultiplyAdd(w11, v10, o10);
        let v11 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + 16u * HEAD_STRIDE + column_block * 16u + 4u], HEAD_STRIDE);
        o01 = coopMultiplyAdd(w01, v11, o01);
        o11 = coopMultiplyAdd(w11, v11, o11);
        let v12 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + 16u * HEAD_STRIDE + column_block * 16u + 8u], HEAD_STRIDE);
        o02 = coopMultiplyAdd(w01, v12, o02);
        o12 = coopMultiplyAdd(w11, v12, o12);
        let v13 = coopLoadT<FragmentB>(&head_tile[VALUES_AT + 16u * HEAD_STRIDE + column_block * 16u + 12u], HEAD_STRIDE);
        o03 = coopMultiplyAdd(w01, v13, o03);
        o13 = coopMultiplyAdd(w11, v13, o13);
    }

    if (COLUMN_BLOCKS > 1u) { norm += subgroupShuffleXor(norm, 1u); }
    if (COLUMN_BLOCKS > 2u) { norm += subgroupShuffleXor(norm, 2u); }
    workgroupBarrier();
    if (part == 0u) {
        row_factors[row] = sum_factor(keys, norm);
        if (first_row + row < end_row) { keep_top(keys, kv_head, first_row + row, split, vec2<f32>(reference, norm)); }
    }
    let place13 = own_sums;
    let sums13 = o00;
    coopStoreT(sums13, &block_scores[place13], SCORE_STRIDE);
    let place14 = own_sums + 4u;
    let sums14 = o01;
    coopStoreT(sums14, &block_scores[place14], SCORE_STRIDE);
    let place15 = own_sums + 16u * SCORE_STRIDE;
    let sums15 = o10;
    coopStoreT(sums15, &block_scores[place15], SCORE_STRIDE);
    let place16 = own_sums + 16u * SCORE_STRIDE + 4u;
    let sums16 = o11;
    coopStoreT(sums16, &block_scores[place16], SCORE_STRIDE);
    workgroupBarrier();
    store_half(first_row + own_rows, end_row, keys, kv_head, split, own_rows, own_sums, column_block * 16u, lane);
    workgroupBarrier();
    let place17 = own_sums;
    let sums17 = o02;
    coopStoreT(sums17, &block_scores[place17], SCORE_STRIDE);
    let place18 = own_sums + 4u;
    let sums18 = o03;
    coopStoreT(sums18, &block_scores[place18], SCORE_STRIDE);
    let place19 = own_sums + 16u * SCORE_STRIDE;
    let sums19 = o12;
    coopStoreT(sums19, &block_scores[place19], SCORE_STRIDE);
    let place20 = own_sums + 16u * SCORE_STRIDE + 4u;
    let sums20 = o13;
    coopStoreT(sums20, &block_scores[place20], SCORE_STRIDE);
    workgroupBarrier();
    store_half(first_row + own_rows, end_row, keys, kv_head, split, own_rows, own_sums, column_block * 16u + 8u, lane);
    workgroupBarrier();
}

// Eight fours of 32 rows from workgroup memory to where they are kept.
fn store_half(
    first: u32,
    end_row: u32,
    keys: vec2<u32>,
    kv_head: u32,
    split: u32,
    own_rows: u32,
    own_sums: u32,
    column: u32,
    lane: u32,
) {
    for (var i = lane; i < 256u; i += SG) {
        let row = first + i / 8u;
        if (row >= end_row) { continue; }
        let sum = block_scores[own_sums + i / 8u * SCORE_STRIDE + i % 8u] * row_factors[own_rows + i / 8u];
        keep_four(keys, kv_head, row, split, column + i % 8u, sum);
    }
}
