// Single elements of x, in f32 (ACT_FORMAT F32) or f16 (ACT_FORMAT F16).
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;

fn x_one(i: u32) -> f32 {
    if (ACT_FORMAT == F32) { return bitcast<f32>(x[i / 4u][i % 4u]); }
    return unpack2x16float(x[i / 8u][i / 2u % 4u])[i % 2u];
}
