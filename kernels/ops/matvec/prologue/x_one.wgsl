// Single elements of x, in f32 (ACTS F32) or f16 (ACTS F16).
// requires: var x: array<vec4<u32>>
override ACTS: u32;

fn x_one(i: u32) -> f32 {
    if (ACTS == F32) { return bitcast<f32>(x[i / 4u][i % 4u]); }
    return unpack2x16float(x[i / 8u][i / 2u % 4u])[i % 2u];
}
