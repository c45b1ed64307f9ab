// The RMSNorm of x, four elements at a time, for schedule/pipelined. The norm's weights are known before x is;
// its factor is one number and is applied to the finished sums.
// import: matvec/prologue/bounded
// requires: override K: u32
// requires: var norm_weight, x: array<vec4<f32>>
override EPS: f32;
override WEIGHT_OFFSET: u32; // OFFSET_STANDARD or OFFSET_GEMMA (1 + w)

fn has_norm() -> bool { return true; }

fn rms_factor(squares: f32) -> f32 { return inverseSqrt(squares / f32(K) + EPS); }

fn gain_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return f32(WEIGHT_OFFSET) + bounded(i, norm_weight[i]);
}

fn raw_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return bounded(i, x[i]);
}
