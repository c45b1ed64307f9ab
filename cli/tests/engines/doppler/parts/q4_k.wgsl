fn byte(block: u32, i: u32) -> u32 { return word(block * 36u + 1u + i / 4u) >> (i % 4u * 8u); }
fn weight(block: u32, i: u32) -> f32 {
    let j = i / 32u;
    var scale = byte(block, j) & 63u;
    var low = byte(block, j + 4u) & 63u;
    if (j >= 4u) {
        scale = (byte(block, j + 4u) & 15u) | ((byte(block, j - 4u) >> 2u) & 48u);
        low = ((byte(block, j + 4u) >> 4u) & 15u) | ((byte(block, j) >> 2u) & 48u);
    }
    let code = byte(block, 12u + j / 2u * 32u + i % 32u) >> (j % 2u * 4u);
    let d = unpack2x16float(word(block * 36u));
    return d.x * f32(scale) * f32(code & 15u) - d.y * f32(low);
}
