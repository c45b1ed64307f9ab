// Four rows a workgroup for up to eight vectors. Sums are named vectors, so all of them stay in
// registers; the workgroup's subgroups split K and meet once in workgroup memory.
// import: grid
// requires: type Chunk
// requires: type XChunk
// requires: override N_VECTORS: u32
// requires: override ROWS: u32
// requires: var weights: array<vec4<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_column(column: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, held: f32)
// requires: fn y_at(column: u32, row: u32) -> u32
override WG: u32 = 128u;
override SLOTS: u32 = N_VECTORS * ((WG + 3u) / 4u); // subgroups have at least four lanes

var<workgroup> column_slots: array<vec4<f32>, SLOTS>;

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
    put_column_sum(0u, subgroup, subgroups, lane, s0);
    if (N_VECTORS > 1u) { put_column_sum(1u, subgroup, subgroups, lane, s1); }
    if (N_VECTORS > 2u) { put_column_sum(2u, subgroup, subgroups, lane, s2); }
    if (N_VECTORS > 3u) { put_column_sum(3u, subgroup, subgroups, lane, s3); }
    if (N_VECTORS > 4u) { put_column_sum(4u, subgroup, subgroups, lane, s4); }
    if (N_VECTORS > 5u) { put_column_sum(5u, subgroup, subgroups, lane, s5); }
    if (N_VECTORS > 6u) { put_column_sum(6u, subgroup, subgroups, lane, s6); }
    if (N_VECTORS > 7u) { put_column_sum(7u, subgroup, subgroups, lane, s7); }
    workgroupBarrier();
    for (var i = lid; i < 4u * N_VECTORS; i += WG) {
        let column = i / 4u;
        var total = 0.0;
        for (var s = 0u; s < subgroups; s++) { total += column_slots[column * subgroups + s][i % 4u]; }
        let row = first + i % 4u;
        if (row < ROWS) { store_y(y_at(column, row), total, old_y(y_at(column, row))); }
    }
}

// A subgroup's sum of four rows of a column.
fn put_column_sum(column: u32, subgroup: u32, subgroups: u32, lane: u32, v: vec4<f32>) {
    let sum = subgroupAdd(v);
    if (lane == 0u) { column_slots[column * subgroups + subgroup] = sum; }
}
