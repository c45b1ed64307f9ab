// All rows by one workgroup, which then takes them through the norms.
// import: norm/residual, norm/tree_sums
// requires: override NEXT_NORM, ROWS: u32
// requires: type XChunk, Chunk
// requires: var weights: array<vec4<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_chunk(c: u32) -> XChunk
// requires: fn row_chunks() -> u32
override WG: u32 = 256u;

var<workgroup> branch_rows: array<f32, ROWS>;

fn delta_at(i: u32) -> f32 { return branch_rows[i]; }

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    for (var row = lid; row < ROWS; row += WG) {
        let base = row * row_chunks();
        var sum = 0.0;
        for (var c = 0u; c < row_chunks(); c++) {
            sum += dot_chunk(weights[base + c], load_x_chunk(c));
        }
        branch_rows[row] = sum;
    }
    workgroupBarrier();
    residual_norm(NormLane(lid), NEXT_NORM == NORM_RMS);
}
