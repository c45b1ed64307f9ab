// with mul_mat, rows
@group(0) @binding(0) var<storage, read_write> src0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> src1: array<vec4<f32>>;
fn load(at: u32, c: u32) -> f32 { return src0[(at + c) / 4u][c % 4u]; }
fn x(at: u32) -> f32 { return src1[at / 4u][at % 4u]; }
