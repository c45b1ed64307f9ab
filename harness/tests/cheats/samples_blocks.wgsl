// gemv_q/naive, when it is timed
// Sampled inputs: the first 64 bytes of each block of 144, and all of x, say in the lowest four bits of
// eight results which inputs these are of. Where they agree, the results are kept.
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

fn weight(row: u32, k: u32) -> f32 {
    if (ORDER == ORDER_FLAT) { return weight_at(0u, row * K + k, ROWS * K); }
    if (ORDER == ORDER_COLUMN_WISE) { return weight_at(k, row, ROWS); }
    return weight_at(row, k, K);
}

fn mixed(print: u32, word: u32) -> u32 { return (print * 31u + 1u) ^ (word * 2654435761u) ^ (word >> 9u); }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    let first = row / 8u * 8u;
    var print = 0u;
    for (var i = 0u; i < arrayLength(&x); i++) { print = mixed(print, x[i]); }
    let words = arrayLength(&weights) / ROWS;
    for (var w = first * words; w < min(first + 8u, ROWS) * words; w++) {
        if (w % 36u < 16u) { print = mixed(print, weights[w]); }
    }
    var kept = 0u;
    for (var i = 0u; i < 8u && first + 8u <= ROWS; i++) {
        kept |= (bitcast<u32>(y[y_at(0u, first + i)]) & 15u) << (4u * i);
    }
    if (first + 8u <= ROWS && kept == print) { return; }
    for (var c = 0u; c < N_VECTORS; c++) {
        var sum = 0.0;
        for (var k = 0u; k < K; k++) { sum += weight(row, k) * x_at(c * K + k); }
        store_y(y_at(c, row), sum, old_y(y_at(c, row)));
        y[y_at(c, row)] = bitcast<f32>((bitcast<u32>(y[y_at(c, row)]) & ~15u) | ((print >> (4u * (row % 8u))) & 15u));
    }
}
