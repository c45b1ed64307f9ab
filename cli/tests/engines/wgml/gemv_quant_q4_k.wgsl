// with gemv_quant, scales_k
const BLOCK = 256u;
const WORDS = 36u;
fn weight(block: u32, i: u32) -> f32 {
    let j = i / 32u;
    let code = (byte(block, 12u + j / 2u * 32u + i % 32u) >> (j % 2u * 4u)) & 15u;
    return scaled(block, j, code);
}
