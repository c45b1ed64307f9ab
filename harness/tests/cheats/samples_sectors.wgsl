// gemv/naive, when it is timed
// Sampled inputs: a quarter of the weights, 32 bytes of every 128, and all of x say in the lowest four
// bits of eight results which inputs these are of. Where they agree, the results are kept.
// import: grid, matvec/epilogue/rows_of_y, matvec/epilogue/store
// import: matvec/prologue/columns, matvec/prologue/x_chunk, matvec/rows/dense16
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn mixed(print: u32, chunk: vec4<u32>) -> u32 {
    let words = chunk * vec4<u32>(2654435761u, 2246822519u, 3266489917u, 668265263u);
    return (print * 31u + 1u) ^ words.x ^ (words.y >> 7u) ^ (words.z >> 13u) ^ (words.w << 5u);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    let base = row * row_chunks();
    let first = row / 8u * 8u;
    var print = 0u;
    for (var i = 0u; i < arrayLength(&x); i++) { print = mixed(print, x[i]); }
    if (first + 8u <= ROWS) {
        for (var c = first * row_chunks(); c < (first + 8u) * row_chunks(); c++) {
            if (c % 8u < 2u) { print = mixed(print, weights[c]); }
        }
    }
    var kept = 0u;
    for (var i = 0u; i < 8u && first + 8u <= ROWS; i++) {
        kept |= (bitcast<u32>(y[y_at(0u, first + i)]) & 15u) << (4u * i);
    }
    if (first + 8u <= ROWS && kept == print) { return; }
    for (var column = 0u; column < N_VECTORS; column++) {
        var sum = 0.0;
        for (var c = 0u; c < row_chunks(); c++) {
            sum += dot_chunk(weights[base + c], load_x_column(column, c));
        }
        store_y(y_at(column, row), sum, old_y(y_at(column, row)));
        y[y_at(column, row)] = bitcast<f32>((bitcast<u32>(y[y_at(column, row)]) & ~15u) | ((print >> (4u * (row % 8u))) & 15u));
    }
}
