fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 32u) * 22u;
    let low = (byte(block + 6u + c % 16u) >> (4u * (c % 32u / 16u))) & 15u;
    let high = (byte(block + 2u + c % 32u / 8u) >> (c % 8u)) & 1u;
    return half(block) * (f32(low + 16u * high) - 16.0);
}
