// Where a product goes: element `at` of y takes it, or with BETA_1 what it held and the product. What it
// held is best loaded early: a load at the end is waited for.
// requires: override ROWS: u32
// requires: override Y_OFFSET: u32
// requires: var y: array<f32>
override BETA: u32 = 0u;
override Y_AFTER: u32 = 0u; // elements of a y behind those of the matrix
override Y_STRIDE: u32 = Y_OFFSET + ROWS + Y_AFTER; // from the y of a vector to the next one's

fn old_y(at: u32) -> f32 {
    if (BETA == BETA_0) { return 0.0; }
    return y[at];
}

fn store_y(at: u32, product: f32, held: f32) {
    if (BETA == BETA_0) { y[at] = product; } else { y[at] = held + product; }
}
