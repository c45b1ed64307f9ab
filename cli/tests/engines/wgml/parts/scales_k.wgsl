fn byte(block: u32, i: u32) -> u32 { return m[block * WORDS + 1u + i / 4u] >> (i % 4u * 8u); }
fn scaled(block: u32, j: u32, code: u32) -> f32 {
    var scale = byte(block, j) & 63u;
    var low = byte(block, j + 4u) & 63u;
    if (j >= 4u) {
        scale = (byte(block, j + 4u) & 15u) | ((byte(block, j - 4u) >> 2u) & 48u);
        low = ((byte(block, j + 4u) >> 4u) & 15u) | ((byte(block, j) >> 2u) & 48u);
    }
    let d = unpack2x16float(m[block * WORDS]);
    return d.x * f32(scale) * f32(code) - d.y * f32(low);
}
