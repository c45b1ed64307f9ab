// gemv/naive: one invocation a row, sixteen bytes at a time.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]    W: (ROWS, K)  x: (N_VECTORS, K) f32 or f16
//   y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER), f32 accumulation
//
// Idea: the formula, nothing else. Neighbouring invocations read rows K elements apart, so every
// load of a wave touches another cache line: this rung shows what coalescing is worth.
// import: grid, matvec/epilogue/rows_of_y, matvec/epilogue/store, matvec/prologue/dot_chunk
// import: matvec/prologue/vectors, matvec/rows/dense16
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    let base = row * row_chunks();
    for (var vector = 0u; vector < N_VECTORS; vector++) {
        var sum = 0.0;
        for (var c = 0u; c < row_chunks(); c++) {
            sum += dot_chunk(weights[base + c], load_vector_chunk(vector, c));
        }
        store_y(y_at(vector, row), sum, old_y(y_at(vector, row)));
    }
}
