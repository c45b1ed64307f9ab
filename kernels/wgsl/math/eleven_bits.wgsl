// The first eleven bits of the mantissa, which f16 holds. By its bits, for a driver takes f32(f16(v)) for v and
// would leave no rest.
fn eleven_bits(v: vec4<f32>) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(v) & vec4<u32>(0xffffe000u));
}
