// Where a product goes: element `at` of y takes it, or with BETA 1 what it held and the product. The file
// declares `y: array<f32>`.
override BETA: u32 = 0u;

fn store_y(at: u32, product: f32) {
    if (BETA == 0u) { y[at] = product; } else { y[at] += product; }
}
