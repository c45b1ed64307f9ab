// with gemv_quant, bytes
const BLOCK = 64u;
fn weight(blocks: u32, i: u32) -> f32 {
    let at = (blocks * 2u + i / 32u) * 34u;
    return half(at) * f32(extractBits(i32(byte(at + 2u + i % 32u)), 0u, 8u));
}
