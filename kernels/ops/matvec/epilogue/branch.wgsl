// For norm/residual where the product is a dispatch of its own: rows go to `branch`, and the branch comes
// from there into `stream`. Nothing is added to what `branch` held.
// requires: override ROWS: u32
// requires: var branch: array<f32>
// requires: var stream: array<f32>
override NEXT_NORM: u32;
override N: u32 = ROWS;
const Y_OFFSET: u32 = 0u;
const BETA: u32 = BETA_0;

fn old_y(at: u32) -> f32 { return 0.0; }

fn store_y(at: u32, product: f32, held: f32) { branch[at] = product; }

fn delta_at(i: u32) -> f32 { return branch[i]; }

fn stream_at(i: u32) -> f32 { return stream[i]; }

fn set_stream(i: u32, value: f32) { stream[i] = value; }
