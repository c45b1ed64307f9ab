// A lane's part of a row in any format, one weight at a time: every weight finds its scale again.
// import: format/load_one, format/weight_at, matvec/rows/words
// requires: override LANES: u32
fn lane_product(row: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var i = lane; i < K; i += LANES) { sum += weight_at(row, i, K) * x_at(i); }
    return sum;
}
