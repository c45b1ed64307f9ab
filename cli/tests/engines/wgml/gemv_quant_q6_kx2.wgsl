// with gemv_quant, bytes
const BLOCK = 512u;
fn weight(blocks: u32, i: u32) -> f32 {
    let at = (blocks * 2u + i / 256u) * 210u;
    let half_of_block = i / 128u % 2u;
    let part = i / 32u % 4u;
    let low = byte(at + half_of_block * 64u + i % 64u) >> (part / 2u * 4u);
    let high = byte(at + 128u + half_of_block * 32u + i % 32u) >> (part * 2u);
    let code = i32((low & 15u) | ((high & 3u) << 4u)) - 32;
    let scale = extractBits(i32(byte(at + 192u + i % 256u / 16u)), 0u, 8u);
    return half(at + 208u) * f32(scale) * f32(code);
}
