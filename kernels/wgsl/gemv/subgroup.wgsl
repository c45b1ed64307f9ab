// gemv/subgroup: one subgroup a row, four loads in flight a lane.
//
//   y[FIRST + r] = sum_k W[r][k] * x[k]        W: (ROWS, K)  x: (K) f32 or f16, f32 accumulation
//
// Idea: coalesced 16-byte loads across the lanes, all four of a round issued before the first
// use, one subgroupAdd at the end. With SG known the trip count is a constant and the driver
// unrolls the loop. A workgroup owns ROWS_PER_WG rows whatever the subgroup size is, so the
// mapping holds on adapters whose subgroup size varies.
// uses: dot_row, weights, grid
override ROWS: u32;
override FIRST: u32;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 8u;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// A chunk of the row, zero beyond its end.
fn load_w(base: u32, c: u32) -> vec4<u32> {
    if (c < row_chunks()) { return weights[base + c]; }
    return vec4<u32>(0u);
}

fn contribute(w: vec4<u32>, c: u32) -> f32 {
    if (c < row_chunks()) { return dot_chunk(w, load_x_chunk(c)); }
    return 0.0;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let first = group_index(workgroup, groups) * ROWS_PER_WG;
    for (var r = subgroup; r < ROWS_PER_WG; r += subgroups) {
        let row = first + r;
        if (row >= ROWS) { break; }
        let base = row * row_chunks();
        var sum = 0.0;
        for (var round = 0u; round < row_chunks(); round += 4u * sg) {
            let c0 = round + lane;
            let c1 = c0 + sg;
            let c2 = c1 + sg;
            let c3 = c2 + sg;
            let w0 = load_w(base, c0);
            let w1 = load_w(base, c1);
            let w2 = load_w(base, c2);
            let w3 = load_w(base, c3);
            sum += contribute(w0, c0) + contribute(w1, c1);
            sum += contribute(w2, c2) + contribute(w3, c3);
        }
        let total = subgroupAdd(sum);
        if (lane == 0u) { y[FIRST + row] = total; }
    }
}
