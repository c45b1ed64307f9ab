// Chunks of x, activations in f32 (ACT_FORMAT F32) or f16 (ACT_FORMAT F16), for any K.
// import: format/dense, matvec/prologue/dot_chunk, matvec/prologue/masked, matvec/rows/dense16
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;

fn load_x_chunk(c: u32) -> XChunk {
    if (WEIGHT == F32) {
        if (ACT_FORMAT == F32) { return XChunk(masked(c, bitcast<vec4<f32>>(x[c])), vec4<f32>(0.0)); }
        let w = x[c / 2u];
        let half = select(w.xy, w.zw, c % 2u == 1u);
        let v = vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y));
        return XChunk(masked(c, v), vec4<f32>(0.0));
    }
    if (ACT_FORMAT == F32) {
        return XChunk(
            masked(2u * c, bitcast<vec4<f32>>(x[2u * c])),
            masked(2u * c + 1u, bitcast<vec4<f32>>(x[2u * c + 1u])),
        );
    }
    let w = x[c];
    return XChunk(
        masked(2u * c, vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y))),
        masked(2u * c + 1u, vec4<f32>(unpack2x16float(w.z), unpack2x16float(w.w))),
    );
}
