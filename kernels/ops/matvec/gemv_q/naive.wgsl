// gemv_q/naive: one invocation a row, one weight at a time.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]
//   W: (ROWS, K) quantised  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)
//
// Idea: the formula over blocks as the file has them, in any order of the superblocks. Every weight
// finds its scale again.
// import: format/load_one, format/weight_at, grid, matvec/epilogue/store
// import: matvec/epilogue/rows_of_y
override ROWS: u32;
override N_VECTORS: u32;
override Y_OFFSET: u32;
override K: u32;
override ORDER: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

// Blocks run along rows, along the whole matrix, or down columns.
fn weight(row: u32, k: u32) -> f32 {
    if (ORDER == ORDER_FLAT) { return weight_at(0u, row * K + k, ROWS * K); }
    if (ORDER == ORDER_COLUMN_WISE) { return weight_at(k, row, ROWS); }
    return weight_at(row, k, K);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    for (var c = 0u; c < N_VECTORS; c++) {
        var sum = 0.0;
        for (var k = 0u; k < K; k++) { sum += weight(row, k) * x_at(c * K + k); }
        store_y(y_at(c, row), sum, old_y(y_at(c, row)));
    }
}
