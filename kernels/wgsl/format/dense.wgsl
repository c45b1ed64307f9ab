// Sixteen bytes of a packed weight row as floats. Every format is read as u32 words, so none
// needs the f16 feature; bf16 is the upper half of an f32.
override WEIGHT: u32; // a dense format

// Elements in sixteen bytes.
fn chunk_elements() -> u32 {
    if (WEIGHT == F32) { return 4u; }
    return 8u;
}

fn unpack_pair(word: u32) -> vec2<f32> {
    if (WEIGHT == F16) { return unpack2x16float(word); }
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// Elements 0..4 of a chunk.
fn unpack_low(chunk: vec4<u32>) -> vec4<f32> {
    if (WEIGHT == F32) { return bitcast<vec4<f32>>(chunk); }
    return vec4<f32>(unpack_pair(chunk.x), unpack_pair(chunk.y));
}

// Elements 4..8 of a chunk of 16-bit values.
fn unpack_high(chunk: vec4<u32>) -> vec4<f32> {
    return vec4<f32>(unpack_pair(chunk.z), unpack_pair(chunk.w));
}
