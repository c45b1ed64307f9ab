// A lane's part of a dense row.
// import: matvec/prologue/dot_chunk, matvec/prologue/x_chunk, matvec/rows/dense16
// requires: override LANES: u32
fn lane_product(row: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var c = lane; c < row_chunks(); c += LANES) {
        sum += dot_chunk(load_chunk(row, c), load_x_chunk(c));
    }
    return sum;
}
