// Attention of ROWS query rows of one KV head, K and V in tiles of TILE slots in workgroup memory,
// without subgroups. A row is a query head of a token:
//   row_query(row), row_output(row): the four of q and y at which it begins
//   row_slots(row): the first slot it attends to and the one past its last
// A row is whole chunks; ROWS of them are at most WG.
// import: attention/parts/softmax, format/store_four, kv/chunk, kv/vector
// requires: override KV_SIZE, HEAD_DIM, ROWS, TILE, WG: u32
// requires: var q: array<vec4<f32>>
// requires: fn row_output(row: u32) -> u32
// requires: fn row_query(row: u32) -> u32
// requires: fn row_slots(row: u32) -> vec2<u32>
override SCALE: f32;
override LANES: u32 = 4u; // invocations a score

override QUERY_SLOTS: u32 = ROWS * HEAD_DIM / 4u;
// A row of K has a chunk of padding, so that neighbours do not share banks.
override K_SLOTS: u32 = TILE * (HEAD_DIM / select(8u, 4u, KV_FORMAT == KV_F32) + 1u);
override V_SLOTS: u32 = TILE * (HEAD_DIM / select(8u, 4u, KV_FORMAT == KV_F32));
override DOT_SLOTS: u32 = TILE * ROWS * LANES;
override SCORE_SLOTS: u32 = TILE * ROWS;
override MERGE_SLOTS: u32 = WG * select(2u, 1u, KV_FORMAT == KV_F32);
var<workgroup> tile_query: array<vec4<f32>, QUERY_SLOTS>;
var<workgroup> k_tile: array<vec4<u32>, K_SLOTS>;
var<workgroup> v_tile: array<vec4<u32>, V_SLOTS>;
var<workgroup> dots: array<f32, DOT_SLOTS>;
var<workgroup> tile_scores: array<f32, SCORE_SLOTS>;
var<workgroup> tile_maxima: array<vec2<f32>, WG>;
var<workgroup> tile_outputs: array<vec4<f32>, MERGE_SLOTS>;

// Rows first_row.. of `rows`, over slots `begin` to `end`, which must hold those of every row.
fn attend_tiles(lid: u32, kv_head: u32, first_row: u32, rows: u32, begin: u32, end: u32) {
    let fours = HEAD_DIM / 4u;
    let per_chunk = chunk_fours();
    let chunks = fours / per_chunk;
    let cache = kv_head * KV_SIZE * vector_chunks();
    for (var i = lid; i < ROWS * fours; i += WG) {
        let row = min(first_row + i / fours, rows - 1u);
        tile_query[i] = SCALE * LOG2_E * q[row_query(row) + i % fours];
    }

    // For the values an invocation has one chunk of one row, and every few slots.
    let units = ROWS * chunks;
    let parts = WG / units;
    let part = lid / units;
    let row = lid % units / chunks;
    let chunk = lid % chunks;
    let slots = row_slots(min(first_row + row, rows - 1u));
    var most = LOWEST;
    var norm = 0.0;
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var tile = begin; tile < end; tile += TILE) {
        workgroupBarrier();
        for (var i = lid; i < TILE * chunks; i += WG) {
            let slot = i / chunks;
            let vector = cache + min(tile + slot, end - 1u) * vector_chunks();
            k_tile[i + slot] = k_chunk(vector, i % chunks);
            v_tile[i] = v_chunk(vector, i % chunks);
        }
        workgroupBarrier();
        // LANES invocations a score.
        for (var i = lid; i < TILE * ROWS * LANES; i += WG) {
            let slot = i / LANES % TILE;
            let its_query = i / LANES / TILE * fours;
            var sum = vec4<f32>(0.0);
            for (var c = i % LANES; c < chunks; c += LANES) {
                let loaded = k_tile[slot * (chunks + 1u) + c];
                for (var p = 0u; p < per_chunk; p++) {
                    sum += tile_query[its_query + c * per_chunk + p] * chunk_four(loaded, p);
                }
            }
            dots[i] = sum.x + sum.y + sum.z + sum.w;
        }
        workgroupBarrier();
        for (var i = lid; i < TILE * ROWS; i += WG) {
            var score = 0.0;
            for (var l = 0u; l < LANES; l++) { score += dots[i * LANES + l]; }
            let t = tile + i % TILE;
            let slots = row_slots(min(first_row + i / TILE, rows - 1u));
            tile_scores[i] = select(LOWEST, score, t >= slots.x && t < slots.y);
        }
        workgroupBarrier();
        if (part < parts) {
            var top = most;
            for (var s = part; s < TILE; s += parts) { top = max(top, tile_scores[row * TILE + s]); }
            let decay = exp2(most - top);
            most = top;
            norm *= decay;
            low *= decay;
            high *= decay;
            for (var s = part; s < TILE; s += parts) {
                let score = tile_scores[row * TILE + s];
                let t = tile + s;
                let weight = select(0.0, exp2(score - top), t >= slots.x && t < slots.y);
                norm += weight;
                let loaded = v_tile[s * chunks + chunk];
                low += weight * chunk_four(loaded, 0u);
                if (KV_FORMAT != KV_F32) { high += weight * chunk_four(loaded, 1u); }
            }
        }
    }

    if (part < parts) {
        if (chunk == 0u) { tile_maxima[part * ROWS + row] = vec2<f32>(most, norm); }
        let at = (part * ROWS + row) * fours + chunk * per_chunk;
        tile_outputs[at] = low;
        if (KV_FORMAT != KV_F32) { tile_outputs[at + 1u] = high; }
    }
    workgroupBarrier();
    for (var i = lid; i < ROWS * fours; i += WG) {
        let its_row = i / fours;
        if (first_row + its_row >= rows) { break; }
        var top = LOWEST;
        for (var p = 0u; p < parts; p++) { top = max(top, tile_maxima[p * ROWS + its_row].x); }
        var total = 0.0;
        var sum = vec4<f32>(0.0);
        for (var p = 0u; p < parts; p++) {
            let its_top = tile_maxima[p * ROWS + its_row];
            let weight = exp2(its_top.x - top);
            total += weight * its_top.y;
            sum += weight * tile_outputs[(p * ROWS + its_row) * fours + i % fours];
        }
        store_four(row_output(first_row + its_row) + i % fours, sum / total);
    }
}
