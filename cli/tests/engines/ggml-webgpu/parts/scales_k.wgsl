fn scale(block: u32, s: u32) -> vec2<f32> {
    let a = vec3(byte(block + 4u + s % 4u), byte(block + 8u + s % 4u), byte(block + 12u + s % 4u));
    if (s < 4u) { return vec2(half(block) * f32(a.x & 63u), half(block + 2u) * f32(a.y & 63u)); }
    let d = half(block) * f32((a.z & 15u) | ((a.x >> 6u) << 4u));
    return vec2(d, half(block + 2u) * f32((a.z >> 4u) | ((a.y >> 6u) << 4u)));
}
