// Sixteen bytes of a KV cache declared as array<vec4<u32>>: four f32 (KV_FORMAT F32) or eight f16 (KV_FORMAT
// F16).
override KV_FORMAT: u32;

// Groups of four elements in a chunk.
fn chunk_fours() -> u32 { return 1u + KV_FORMAT; }

// Elements 4i..4i+4 of a chunk.
fn chunk_four(chunk: vec4<u32>, i: u32) -> vec4<f32> {
    if (KV_FORMAT == F32) { return bitcast<vec4<f32>>(chunk); }
    if (i == 0u) { return vec4<f32>(unpack2x16float(chunk.x), unpack2x16float(chunk.y)); }
    return vec4<f32>(unpack2x16float(chunk.z), unpack2x16float(chunk.w));
}
