// gemv_q/planes: LANES lanes a row, four chunks in flight a lane.
//
//   y[FIRST + r] = sum_k W[r][k] * x[k]     W: (ROWS, K) quantised, in planes  x: (K) f32 or f16
//
// Idea: with the fields of a row's blocks apart every load is sixteen aligned bytes of codes, 32
// neighbours under one scale, coalesced across the lanes; scales come from their own plane at the
// same time instead of before. All of a round is issued before the first use. One row has all
// lanes (LANES 32) for matrices of few rows: the more lanes a row, the more of the GPU they fill.
// uses: planes, x_four, x_tile, grid
override FIRST: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// Nothing past the end.
fn load(base: u32, first: u32, c: u32, end: u32) -> Chunk {
    if (c < end) { return load_chunk(base, first + c); }
    return Chunk();
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let rows = WG / LANES;
    let row = group_index(workgroup, groups) * rows + slot;
    let live = slot < rows && row < ROWS;
    // Without a row of its own a group of lanes repeats the last one and drops the result.
    let base = row_base(min(row, ROWS - 1u));
    let first = row_first(min(row, ROWS - 1u));
    var sum = 0.0;
    for (var tile = 0u; tile < row_chunks(); tile += TILE) {
        let end = min(row_chunks(), tile + TILE);
        let c = tile + lane % lanes;
        var w0 = load(base, first, c, end);
        var w1 = load(base, first, c + lanes, end);
        var w2 = load(base, first, c + 2u * lanes, end);
        var w3 = load(base, first, c + 3u * lanes, end);
        stage_x(lid, 0u, tile);
        for (var c0 = c; c0 < end; c0 += 4u * lanes) {
            let c1 = c0 + lanes;
            let c2 = c1 + lanes;
            let c3 = c2 + lanes;
            sum += dot_chunk(w0, first + c0, load_x(c0 - tile));
            if (c1 < end) { sum += dot_chunk(w1, first + c1, load_x(c1 - tile)); }
            if (c2 < end) { sum += dot_chunk(w2, first + c2, load_x(c2 - tile)); }
            if (c3 < end) { sum += dot_chunk(w3, first + c3, load_x(c3 - tile)); }
            if (c3 + lanes < end) {
                w0 = load(base, first, c3 + lanes, end);
                w1 = load(base, first, c3 + 2u * lanes, end);
                w2 = load(base, first, c3 + 3u * lanes, end);
                w3 = load(base, first, c3 + 4u * lanes, end);
            }
        }
        workgroupBarrier();
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (live && lane % lanes == 0u) { y[FIRST + row] = sum; }
}
