@group(0) @binding(0) var<storage, read_write> src: array<u32>;
fn byte(at: u32) -> u32 { return (src[at / 4u] >> (8u * (at % 4u))) & 255u; }
fn half(at: u32) -> f32 { return unpack2x16float(src[at / 4u] >> (8u * (at % 4u))).x; }
