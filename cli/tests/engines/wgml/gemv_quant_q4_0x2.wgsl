// with gemv_quant, bytes
const BLOCK = 64u;
fn weight(blocks: u32, i: u32) -> f32 {
    let at = (blocks * 2u + i / 32u) * 18u;
    let code = (byte(at + 2u + i % 16u) >> (i / 16u % 2u * 4u)) & 15u;
    return half(at) * (f32(code) - 8.0);
}
