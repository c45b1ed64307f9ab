// `x` as it is (NORM_NONE), or the RMSNorm of `stream`, four elements at a time, for schedule/pipelined. The
// norm's weights are known before the stream is; its factor is one number and is applied to the finished
// sums.
// import: matvec/prologue/bounded
// requires: override K: u32
// requires: var norm_weight, stream: array<vec4<f32>>
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;
override EPS: f32;
override INPUT_NORM: u32;

fn has_norm() -> bool { return INPUT_NORM == NORM_RMS; }

fn rms_factor(squares: f32) -> f32 { return inverseSqrt(squares / f32(K) + EPS); }

fn gain_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return bounded(i, norm_weight[i]);
}

fn raw_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    if (INPUT_NORM == NORM_RMS) { return bounded(i, stream[i]); }
    if (ACT_FORMAT == F32) { return bounded(i, bitcast<vec4<f32>>(x[i])); }
    let w = x[i / 2u];
    let half = select(w.xy, w.zw, i % 2u == 1u);
    return bounded(i, vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y)));
}
