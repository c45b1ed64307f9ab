// gemv/subgroup_cols: four rows a workgroup for up to eight vectors at once.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]    W: (ROWS, K)  x: (N_VECTORS, K) f32 or f16
//   y: (N_VECTORS, Y_OFFSET + ROWS), f32 accumulation
//
// Idea: decoding several tokens together reads the weights once. A chunk of each of four rows meets
// a chunk of every column: x, which is larger than the weights by then, is read once for four
// rows. Sums are named vectors, so all of them stay in registers. The workgroup's subgroups split
// K and meet once in workgroup memory.
// import: grid, matvec/epilogue/store, matvec/prologue/columns, matvec/rows/dense
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 128u;
override SLOTS: u32 = N_VECTORS * ((WG + 3u) / 4u); // subgroups have at least four lanes

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> slots: array<vec4<f32>, SLOTS>;

struct Rows { w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32> }

fn products(w: Rows, column: u32, c: u32) -> vec4<f32> {
    let v = load_x_column(column, c);
    return vec4<f32>(
        dot_chunk(w.w0, v), dot_chunk(w.w1, v), dot_chunk(w.w2, v), dot_chunk(w.w3, v),
    );
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let first = 4u * flat_index(workgroup, groups, (ROWS - 1u) / 4u + 1u);
    // Rows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    let base0 = min(first, last) * row_chunks();
    let base1 = min(first + 1u, last) * row_chunks();
    let base2 = min(first + 2u, last) * row_chunks();
    let base3 = min(first + 3u, last) * row_chunks();
    var s0 = vec4<f32>(0.0);
    var s1 = vec4<f32>(0.0);
    var s2 = vec4<f32>(0.0);
    var s3 = vec4<f32>(0.0);
    var s4 = vec4<f32>(0.0);
    var s5 = vec4<f32>(0.0);
    var s6 = vec4<f32>(0.0);
    var s7 = vec4<f32>(0.0);
    for (var c = lid; c < row_chunks(); c += WG) {
        let w = Rows(weights[base0 + c], weights[base1 + c], weights[base2 + c], weights[base3 + c]);
        s0 += products(w, 0u, c);
        if (N_VECTORS > 1u) { s1 += products(w, 1u, c); }
        if (N_VECTORS > 2u) { s2 += products(w, 2u, c); }
        if (N_VECTORS > 3u) { s3 += products(w, 3u, c); }
        if (N_VECTORS > 4u) { s4 += products(w, 4u, c); }
        if (N_VECTORS > 5u) { s5 += products(w, 5u, c); }
        if (N_VECTORS > 6u) { s6 += products(w, 6u, c); }
        if (N_VECTORS > 7u) { s7 += products(w, 7u, c); }
    }
    put(0u, subgroup, subgroups, lane, s0);
    if (N_VECTORS > 1u) { put(1u, subgroup, subgroups, lane, s1); }
    if (N_VECTORS > 2u) { put(2u, subgroup, subgroups, lane, s2); }
    if (N_VECTORS > 3u) { put(3u, subgroup, subgroups, lane, s3); }
    if (N_VECTORS > 4u) { put(4u, subgroup, subgroups, lane, s4); }
    if (N_VECTORS > 5u) { put(5u, subgroup, subgroups, lane, s5); }
    if (N_VECTORS > 6u) { put(6u, subgroup, subgroups, lane, s6); }
    if (N_VECTORS > 7u) { put(7u, subgroup, subgroups, lane, s7); }
    workgroupBarrier();
    for (var i = lid; i < 4u * N_VECTORS; i += WG) {
        let column = i / 4u;
        var total = 0.0;
        for (var s = 0u; s < subgroups; s++) { total += slots[column * subgroups + s][i % 4u]; }
        let row = first + i % 4u;
        if (row < ROWS) { store_y(y_at(column, row), total, old_y(y_at(column, row))); }
    }
}

// A subgroup's sum of four rows of a column.
fn put(column: u32, subgroup: u32, subgroups: u32, lane: u32, v: vec4<f32>) {
    let sum = subgroupAdd(v);
    if (lane == 0u) { slots[column * subgroups + subgroup] = sum; }
}
