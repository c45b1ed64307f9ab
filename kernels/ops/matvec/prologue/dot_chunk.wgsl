// Dot product of a packed weight chunk with the elements of a vector that it meets.
// import: format/dense, matvec/rows/dense16
struct XChunk { low: vec4<f32>, high: vec4<f32> }

fn dot_chunk(chunk: Chunk, v: XChunk) -> f32 {
    if (WEIGHT == F32) { return dot(unpack_low(chunk), v.low); }
    return dot(unpack_low(chunk), v.low) + dot(unpack_high(chunk), v.high);
}
