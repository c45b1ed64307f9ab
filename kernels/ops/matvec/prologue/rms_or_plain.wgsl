// One vector for SoA rows: `x` as it is (NORM_NONE), or the RMSNorm of `stream` without its factor
// 1/rms, which is applied to the sums.
// import: matvec/prologue/bounded, matvec/rows/soa
// requires: var norm_weight, stream: array<vec4<f32>>
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;
override INPUT_NORM: u32;
override EPS: f32;

fn has_norm() -> bool { return INPUT_NORM == NORM_RMS; }

fn squares_of(i: u32) -> f32 {
    if (is_past(i)) { return 0.0; }
    let v = bounded(i, stream[i]);
    return dot(v, v);
}

// Elements 4i..4i+4. There is one vector.
fn x_four(vector: u32, i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    if (INPUT_NORM == NORM_RMS) { return bounded(i, stream[i] * norm_weight[i]); }
    if (ACT_FORMAT == F32) { return bounded(i, bitcast<vec4<f32>>(x[i])); }
    let w = x[i / 2u];
    let half = select(w.xy, w.zw, i % 2u == 1u);
    return bounded(i, vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y)));
}

// The squares of what chunk c meets.
fn chunk_squares(c: u32) -> f32 {
    if (INPUT_NORM == NORM_NONE) { return 0.0; }
    let first = c * (soa_chunk_elements() / 4u);
    var sum = 0.0;
    for (var j = 0u; j < soa_chunk_elements() / 4u; j++) { sum += squares_of(first + j); }
    return sum;
}

fn rms_factor(squares: f32) -> f32 {
    if (INPUT_NORM == NORM_NONE) { return 1.0; }
    return inverseSqrt(squares / f32(K) + EPS);
}
