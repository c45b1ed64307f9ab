// The weights of sixteen bytes of a dense row: eight, or four of f32 and zeros.
// import: format/dense, matvec/rows/dense16
fn weights_low(chunk: Chunk) -> vec4<f32> { return unpack_low(chunk); }

fn weights_high(chunk: Chunk) -> vec4<f32> {
    if (WEIGHT == F32) { return vec4<f32>(0.0); }
    return unpack_high(chunk);
}
