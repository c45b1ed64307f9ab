// with mul_mat, rows, mul_mat_vec
enable f16;
@group(0) @binding(0) var<storage, read_write> src0: array<f16>;
fn load(at: u32, c: u32) -> f32 { return f32(src0[at + c]); }
