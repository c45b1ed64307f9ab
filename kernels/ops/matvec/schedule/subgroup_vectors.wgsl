// A subgroup a row of up to eight vectors at a time, four loads in flight a lane.
// import: grid, matvec/epilogue/rows_of_y, matvec/schedule/passes
// requires: type Chunk, XChunk
// requires: override N_VECTORS, ROWS: u32
// requires: var weights: array<vec4<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_vector_chunk(vector: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 8u;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

// A chunk of the row, zero beyond its end.
fn load_in_row(base: u32, c: u32) -> vec4<u32> {
    if (c < row_chunks()) { return weights[base + c]; }
    return vec4<u32>(0u);
}

fn dot_vector(w: vec4<u32>, vector: u32, c: u32) -> f32 {
    if (c < row_chunks()) { return dot_chunk(w, load_vector_chunk(vector_in_pass(vector), c)); }
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
    let group = group_index(workgroup, groups);
    let first_vector = first_in_pass(group);
    let first = group_in_pass(group) * ROWS_PER_WG;
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
            let w0 = load_in_row(base, c0);
            let w1 = load_in_row(base, c1);
            let w2 = load_in_row(base, c2);
            let w3 = load_in_row(base, c3);
            for (var vector = 0u; vector < PASS_VECTORS; vector++) {
                let v = first_vector + vector;
                sums[vector] += dot_vector(w0, v, c0) + dot_vector(w1, v, c1);
                sums[vector] += dot_vector(w2, v, c2) + dot_vector(w3, v, c3);
            }
        }
        for (var vector = 0u; vector < PASS_VECTORS; vector++) {
            let total = subgroupAdd(sums[vector]);
            let at = y_at(first_vector + vector, row);
            if (lane == 0u && r < ROWS_PER_WG && first + r < ROWS && first_vector + vector < N_VECTORS) {
                store_y(at, total, old_y(at));
            }
        }
    }
}
