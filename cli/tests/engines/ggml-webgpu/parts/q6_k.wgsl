fn load(at: u32, c: u32) -> f32 {
    let block = (at + c / 256u) * 210u;
    let i = c % 128u;
    let part = c % 256u / 128u;
    let low = (byte(block + 64u * part + i % 64u) >> (4u * (i / 64u))) & 15u;
    let high = (byte(block + 128u + 32u * part + i % 32u) >> (2u * (i / 32u))) & 3u;
    let scale = i32(byte(block + 192u + c % 256u / 16u) << 24u) >> 24u;
    return half(block + 208u) * f32(scale) * (f32(low + 16u * high) - 32.0);
}
