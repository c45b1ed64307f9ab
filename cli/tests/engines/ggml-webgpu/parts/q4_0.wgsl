fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 18u;
    let low = (byte(block + 2u + c % 16u) >> (4u * (c % 32u / 16u))) & 15u;
    return half(block) * (f32(low) - 8.0);
}
