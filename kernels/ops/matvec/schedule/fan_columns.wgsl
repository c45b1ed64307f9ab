// LANES invocations a row of up to eight vectors: eight of them add up the row's sums, and one adds
// up the eight. No subgroups.
// import: grid, matvec/epilogue/rows_of_y, matvec/schedule/share
// requires: type Chunk
// requires: type XChunk
// requires: override N_VECTORS: u32
// requires: override ROWS: u32
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_chunk(row: u32, c: u32) -> Chunk
// requires: fn load_x_column(column: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, held: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u;
override SLOTS: u32 = WG * N_VECTORS;

var<workgroup> fan_slots: array<f32, SLOTS>;

const COLUMN_FAN: u32 = 8u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lanes = min(LANES, WG);
    let lane = lid % lanes;
    // Invocations beyond the last whole row of a workgroup repeat what the next one does.
    let row = group_index(workgroup, groups) * (WG / lanes) + lid / lanes;
    let mine = row < ROWS && lid / lanes < WG / lanes;
    var sums: array<f32, 8>;
    if (mine && N_VECTORS == 1u) { sums[0] = share(row, lane, lanes); }
    if (mine && N_VECTORS > 1u) {
        for (var c = lane; c < row_chunks(); c += lanes) {
            let w = load_chunk(row, c);
            for (var column = 0u; column < N_VECTORS; column++) {
                sums[column] += dot_chunk(w, load_x_column(column, c));
            }
        }
    }
    for (var column = 0u; column < N_VECTORS; column++) { fan_slots[column * WG + lid] = sums[column]; }
    workgroupBarrier();
    if (mine && lane < COLUMN_FAN) {
        for (var column = 0u; column < N_VECTORS; column++) {
            let at = column * WG + lid;
            var sum = fan_slots[at];
            for (var i = COLUMN_FAN; lane + i < lanes; i += COLUMN_FAN) { sum += fan_slots[at + i]; }
            fan_slots[at] = sum;
        }
    }
    workgroupBarrier();
    if (mine && lane == 0u) {
        for (var column = 0u; column < N_VECTORS; column++) {
            let at = column * WG + lid;
            var sum = fan_slots[at];
            for (var i = 1u; i < min(COLUMN_FAN, lanes); i++) { sum += fan_slots[at + i]; }
            store_y(y_at(column, row), sum, old_y(y_at(column, row)));
        }
    }
}
