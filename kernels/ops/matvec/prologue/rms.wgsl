// One vector for SoA rows: x times the norm's weights, without the factor 1/rms, which is one number and
// is applied to the sum; and the squares that make it.
// import: matvec/prologue/bounded, matvec/rows/soa
// requires: var norm_weight, x: array<vec4<f32>>
override EPS: f32;
override WEIGHT_OFFSET: u32; // OFFSET_STANDARD or OFFSET_GEMMA (1 + w)

// Elements 4i..4i+4. There is one vector.
fn x_four(vector: u32, i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return bounded(i, x[i] * (f32(WEIGHT_OFFSET) + norm_weight[i]));
}

fn has_norm() -> bool { return true; }

fn squares_of(i: u32) -> f32 {
    if (is_past(i)) { return 0.0; }
    let v = bounded(i, x[i]);
    return dot(v, v);
}

fn rms_factor(squares: f32) -> f32 { return inverseSqrt(squares / f32(K) + EPS); }
