// Where a product goes: element `at` of y takes it, or with BETA_1 what it held and the product. What it
// held is best loaded early: a load at the end is waited for.
// requires: var y: array<f32>
override BETA: u32 = BETA_0;

fn old_y(at: u32) -> f32 {
    if (BETA == BETA_0) { return 0.0; }
    return y[at];
}

fn store_y(at: u32, product: f32, y_before: f32) {
    if (BETA == BETA_0) { y[at] = product; } else { y[at] = y_before + product; }
}
