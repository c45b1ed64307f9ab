// Where the y of one vector lies after that of another.
// requires: override ROWS, Y_OFFSET: u32
override Y_AFTER: u32 = 0u; // elements of a y behind those of the matrix
override Y_STRIDE: u32 = Y_OFFSET + ROWS + Y_AFTER;

// Where row `row` of the product with a vector lies in y, which is (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER).
fn y_at(vector: u32, row: u32) -> u32 {
    return vector * Y_STRIDE + Y_OFFSET + row;
}
