// with scales_k
fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 256u) * 176u;
    let low = (byte(block + 48u + c % 256u / 64u * 32u + c % 32u) >> (4u * (c % 64u / 32u))) & 15u;
    let high = (byte(block + 16u + c % 32u) >> (c % 256u / 32u)) & 1u;
    let s = scale(block, c % 256u / 32u);
    return s.x * f32(low + 16u * high) - s.y;
}
