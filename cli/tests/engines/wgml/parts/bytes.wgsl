fn byte(at: u32) -> u32 { return (m[at / 4u] >> (at % 4u * 8u)) & 255u; }
fn half(at: u32) -> f32 { return unpack2x16float(byte(at) | (byte(at + 1u) << 8u)).x; }
