// gemv_q/planes: LANES lanes a row, four chunks in flight a lane.
//
//   y[FIRST + r] = sum_k W[r][k] * x[k]     W: (ROWS, K) quantised, in planes  x: (K) f32 or f16
//
// Idea: with the fields of a row's blocks apart every load is sixteen aligned bytes of codes, 32
// neighbours under one scale, coalesced across the lanes; scales come from their own plane at the
// same time instead of before. All of a round is issued before the first use. One row has all
// lanes (LANES 32) for matrices of few rows: the more lanes a row, the more of the GPU they fill.
// uses: planes, x_four, grid
override FIRST: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// Nothing past the row's end.
fn load(base: u32, first: u32, c: u32) -> Chunk {
    if (c < row_chunks()) { return load_chunk(base, first + c); }
    return Chunk();
}

fn contribute(chunk: Chunk, first: u32, c: u32) -> f32 {
    if (c < row_chunks()) { return dot_chunk(chunk, first + c, load_x(0u, c)); }
    return 0.0;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
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
    for (var round = 0u; round < row_chunks(); round += 4u * lanes) {
        let c0 = round + lane % lanes;
        let c1 = c0 + lanes;
        let c2 = c1 + lanes;
        let c3 = c2 + lanes;
        let w0 = load(base, first, c0);
        let w1 = load(base, first, c1);
        let w2 = load(base, first, c2);
        let w3 = load(base, first, c3);
        sum += contribute(w0, first, c0);
        sum += contribute(w1, first, c1);
        sum += contribute(w2, first, c2);
        sum += contribute(w3, first, c3);
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (live && lane % lanes == 0u) { y[FIRST + row] = sum; }
}
