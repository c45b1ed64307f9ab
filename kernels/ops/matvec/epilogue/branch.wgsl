// For norm/residual where the product is a dispatch of its own: rows go to `branch`, and the branch comes
// from there into `stream`. Nothing is added to what `branch` held.
// import: matvec/epilogue/residual
// requires: var branch: array<f32>
const Y_OFFSET: u32 = 0u;
const BETA: u32 = BETA_0;

fn old_y(at: u32) -> f32 { return 0.0; }

fn store_y(at: u32, product: f32, y_before: f32) { branch[at] = product; }

fn delta_at(i: u32) -> f32 { return branch[i]; }
