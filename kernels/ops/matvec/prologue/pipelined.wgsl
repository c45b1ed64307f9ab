// The elements of x that a chunk of a dense row meets.
// import: format/dense, matvec/prologue/dot_chunk
// requires: fn gain_four(i: u32) -> vec4<f32>
// requires: fn has_norm() -> bool
// requires: fn raw_four(i: u32) -> vec4<f32>
// A chunk of the vector, and the sum of its squares where a norm's factor is made of them.
struct TilePart { v: XChunk, squares: f32 }

fn gain_of(c: u32) -> XChunk {
    if (!has_norm()) { return XChunk(); }
    if (WEIGHT == F32) { return XChunk(gain_four(c), vec4<f32>(0.0)); }
    return XChunk(gain_four(2u * c), gain_four(2u * c + 1u));
}

fn chunk_of_x(c: u32) -> XChunk {
    if (WEIGHT == F32) { return XChunk(raw_four(c), vec4<f32>(0.0)); }
    return XChunk(raw_four(2u * c), raw_four(2u * c + 1u));
}

fn tile_part(c: u32, gain: XChunk) -> TilePart {
    let part = chunk_of_x(c);
    if (!has_norm()) { return TilePart(part, 0.0); }
    let squares = dot(part.low, part.low) + dot(part.high, part.high);
    return TilePart(XChunk(part.low * gain.low, part.high * gain.high), squares);
}
