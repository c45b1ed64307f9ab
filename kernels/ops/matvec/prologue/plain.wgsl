// Activations four at a time out of x, N_VECTORS vectors of K elements, in f32 (ACT_FORMAT F32) or f16
// (ACT_FORMAT F16).
// requires: override K: u32
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;

// Elements 4i..4i+4 of a vector. Beyond K they are padding of unknown content or another
// vector, here zero; 32 from a multiple of 32 on may be read. With several vectors K is a multiple of 8.
fn x_four(vector: u32, i: u32) -> vec4<f32> {
    let ragged = K % 32u != 0u;
    if (ragged && 4u * i >= K) { return vec4<f32>(0.0); }
    let at = vector * (K / 4u) + i;
    var v: vec4<f32>;
    if (ACT_FORMAT == F32) {
        v = bitcast<vec4<f32>>(x[at]);
    } else {
        let w = x[at / 2u];
        let half = select(w.xy, w.zw, at % 2u == 1u);
        v = vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y));
    }
    if (ragged) {
        let e = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
        v = select(vec4<f32>(0.0), v, e < vec4<u32>(K));
    }
    return v;
}
