fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 34u;
    return half(block) * f32(i32(byte(block + 2u + c % 32u) << 24u) >> 24u);
}
