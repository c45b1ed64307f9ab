// LANES invocations a row of up to eight vectors at a time: eight of them add up the row's sums, and one adds
// up the eight. No subgroups.
// import: grid, matvec/epilogue/rows_of_y, matvec/schedule/passes, matvec/schedule/share
// requires: type Chunk, XChunk
// requires: override N_VECTORS, ROWS: u32
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_chunk(row: u32, c: u32) -> Chunk
// requires: fn load_vector_chunk(vector: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u;
override SLOTS: u32 = WG * PASS_VECTORS;

var<workgroup> vector_sums_of: array<f32, SLOTS>;

const VECTORS_FAN_IN: u32 = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lanes = min(LANES, WG);
    let lane = lid % lanes;
    // Invocations beyond the last whole row of a workgroup repeat what the next one does.
    let group = group_index(workgroup, groups);
    let first_vector = first_in_pass(group);
    let row = group_in_pass(group) * (WG / lanes) + lid / lanes;
    let mine = row < ROWS && lid / lanes < WG / lanes;
    var sums: array<f32, 8>;
    if (mine && N_VECTORS == 1u) { sums[0] = share(row, lane, lanes); }
    if (mine && N_VECTORS > 1u) {
        for (var c = lane; c < row_chunks(); c += lanes) {
            let w = load_chunk(row, c);
            for (var vector = 0u; vector < PASS_VECTORS; vector++) {
                sums[vector] += dot_chunk(w, load_vector_chunk(vector_in_pass(first_vector + vector), c));
            }
        }
    }
    for (var vector = 0u; vector < PASS_VECTORS; vector++) { vector_sums_of[vector * WG + lid] = sums[vector]; }
    workgroupBarrier();
    if (mine && lane < VECTORS_FAN_IN) {
        for (var vector = 0u; vector < PASS_VECTORS; vector++) {
            let at = vector * WG + lid;
            var sum = vector_sums_of[at];
            for (var i = VECTORS_FAN_IN; lane + i < lanes; i += VECTORS_FAN_IN) { sum += vector_sums_of[at + i]; }
            vector_sums_of[at] = sum;
        }
    }
    workgroupBarrier();
    if (mine && lane == 0u) {
        for (var vector = 0u; vector < PASS_VECTORS; vector++) {
            let at = vector * WG + lid;
            var sum = vector_sums_of[at];
            for (var i = 1u; i < min(VECTORS_FAN_IN, lanes); i++) { sum += vector_sums_of[at + i]; }
            let of_y = y_at(first_vector + vector, row);
            if (first_vector + vector < N_VECTORS) { store_y(of_y, sum, old_y(of_y)); }
        }
    }
}
