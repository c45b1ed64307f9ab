// with scales_k
fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 256u) * 144u;
    let low = (byte(block + 16u + c % 256u / 64u * 32u + c % 32u) >> (4u * (c % 64u / 32u))) & 15u;
    let s = scale(block, c % 256u / 32u);
    return s.x * f32(low) - s.y;
}
