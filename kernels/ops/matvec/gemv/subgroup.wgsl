// gemv/subgroup: one subgroup a row, four loads in flight a lane.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]    W: (ROWS, K)  x: (N_VECTORS, K) f32 or f16
//   y: (N_VECTORS, Y_OFFSET + ROWS), f32 accumulation
//
// Idea: coalesced 16-byte loads across the lanes, all four of a round issued before the first
// use and used for every column, one subgroupAdd a column at the end. A workgroup owns ROWS_PER_WG
// rows whatever the subgroup size is, so the mapping holds on adapters whose subgroup size varies.
// import: grid, matvec/epilogue/store, matvec/prologue/columns, matvec/rows/dense
override ROWS: u32;
override Y_OFFSET: u32;
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

fn contribute(w: vec4<u32>, column: u32, c: u32) -> f32 {
    if (c < row_chunks()) { return dot_chunk(w, load_x_column(column, c)); }
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
    // Every subgroup runs as many iterations: subgroup operations need uniform control flow. Rows past
    // the end repeat the last one, and what they make is dropped.
    for (var turn = 0u; turn < ROWS_PER_WG; turn += subgroups) {
        let r = turn + subgroup;
        let row = min(first + r, ROWS - 1u);
        let base = row * row_chunks();
        var sums: array<f32, 8>;
        for (var round = 0u; round < row_chunks(); round += 4u * sg) {
            let c0 = round + lane;
            let c1 = c0 + sg;
            let c2 = c1 + sg;
            let c3 = c2 + sg;
            let w0 = load_w(base, c0);
            let w1 = load_w(base, c1);
            let w2 = load_w(base, c2);
            let w3 = load_w(base, c3);
            for (var column = 0u; column < N_VECTORS; column++) {
                sums[column] += contribute(w0, column, c0) + contribute(w1, column, c1);
                sums[column] += contribute(w2, column, c2) + contribute(w3, column, c3);
            }
        }
        for (var column = 0u; column < N_VECTORS; column++) {
            let total = subgroupAdd(sums[column]);
            if (lane == 0u && r < ROWS_PER_WG && first + r < ROWS) {
                store_y(y_at(column, row), total, old_y(y_at(column, row)));
            }
        }
    }
}
