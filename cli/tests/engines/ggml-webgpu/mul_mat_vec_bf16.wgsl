// with mul_mat, rows, mul_mat_vec
@group(0) @binding(0) var<storage, read_write> src0: array<u32>;
fn load(at: u32, c: u32) -> f32 {
    let word = src0[(at + c) / 2u];
    return bitcast<f32>((word >> (16u * ((at + c) % 2u))) << 16u);
}
