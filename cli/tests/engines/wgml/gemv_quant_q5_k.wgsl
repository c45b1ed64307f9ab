// with gemv_quant, scales_k
const BLOCK = 256u;
const WORDS = 44u;
fn weight(block: u32, i: u32) -> f32 {
    let j = i / 32u;
    let high = (byte(block, 12u + i % 32u) >> j) & 1u;
    let code = ((byte(block, 44u + j / 2u * 32u + i % 32u) >> (j % 2u * 4u)) & 15u) + high * 16u;
    return scaled(block, j, code);
}
