// Pairs of values between storage formats, in words: f32, f16, bf16.
override FROM: u32;
override TO: u32;

// The nearest bf16 as the upper half of a word, ties to even. NaN stays NaN: its lower bits may
// carry over, so it gets a bit that does not.
fn bf16_bits(bits: u32) -> u32 {
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return (bits | 0x400000u) & 0xffff0000u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u;
}

// Two 16-bit values as the bits of two f32.
fn widen(word: u32) -> vec2<u32> {
    if (FROM == F16) { return bitcast<vec2<u32>>(unpack2x16float(word)); }
    return vec2<u32>(word << 16u, word & 0xffff0000u);
}

// The bits of two f32 as two 16-bit values.
fn narrow(bits: vec2<u32>) -> u32 {
    if (TO == F16) { return pack2x16float(bitcast<vec2<f32>>(bits)); }
    return (bf16_bits(bits.x) >> 16u) | bf16_bits(bits.y);
}
