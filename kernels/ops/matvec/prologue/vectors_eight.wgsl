// Several vectors in x, one after another, K a multiple of eight: eight elements at a time.
// import: format/eight
// requires: override K: u32
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;
override N_VECTORS: u32 = 1u; // 1..=8

alias XChunk = Eight;

fn load_vector_chunk(vector: u32, c: u32) -> XChunk {
    let at = vector * (K / 8u) + c;
    if (ACT_FORMAT == F32) {
        return XChunk(bitcast<vec4<f32>>(x[2u * at]), bitcast<vec4<f32>>(x[2u * at + 1u]));
    }
    let w = x[at];
    return XChunk(
        vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y)),
        vec4<f32>(unpack2x16float(w.z), unpack2x16float(w.w)),
    );
}
