// x as it is, four elements at a time, for schedule/pipelined: f32 (ACT_FORMAT F32) or f16 (ACT_FORMAT F16).
// import: matvec/prologue/bounded
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;

fn has_norm() -> bool { return false; }

fn rms_factor(squares: f32) -> f32 { return 1.0; }

fn gain_four(i: u32) -> vec4<f32> { return vec4<f32>(1.0); }

fn raw_four(i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    if (ACT_FORMAT == F32) { return bounded(i, bitcast<vec4<f32>>(x[i])); }
    let w = x[i / 2u];
    let half = select(w.xy, w.zw, i % 2u == 1u);
    return bounded(i, vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y)));
}
