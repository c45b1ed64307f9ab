// Single activations of `x: array<u32>`: f32 bits (ACT_FORMAT F32) or f16 pairs (ACT_FORMAT F16).
// requires: var x: array<u32>
override ACT_FORMAT: u32;

fn x_at(i: u32) -> f32 {
    if (ACT_FORMAT == F32) { return bitcast<f32>(x[i]); }
    return unpack2x16float(x[i / 2u])[i % 2u];
}
