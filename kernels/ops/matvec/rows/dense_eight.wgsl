// The weights of sixteen bytes of a dense row: eight, or four of f32 and zeros.
// import: format/dense, format/eight, matvec/rows/dense16
fn weights_of(chunk: Chunk) -> Eight {
    if (WEIGHT == F32) { return Eight(unpack_low(chunk), vec4<f32>(0.0)); }
    return Eight(unpack_low(chunk), unpack_high(chunk));
}
