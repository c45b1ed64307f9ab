// Single activations of `x: array<u32>`: f32 bits (ACTS 0) or f16 pairs (ACTS 1).
// requires: var x: array<u32>
override ACTS: u32;

fn x_at(i: u32) -> f32 {
    if (ACTS == 0u) { return bitcast<f32>(x[i]); }
    return unpack2x16float(x[i / 2u])[i % 2u];
}
