// What lanes load at a time of a KV cache declared as array<vec4<u32>>, four words: four f32, eight f16, or
// eight quants of q8_0 in two words with their scale, an f32, in the third.
// import: kv/vector
// requires: var k_cache, v_cache: array<vec4<u32>>

// Groups of four elements in a chunk.
fn chunk_fours() -> u32 { return select(2u, 1u, KV_FORMAT == KV_F32); }

// Elements of the array that a vector takes.
fn vector_chunks() -> u32 { return vector_words() / 4u; }

// Elements 4i..4i+4 of a chunk.
fn chunk_four(chunk: vec4<u32>, i: u32) -> vec4<f32> {
    if (KV_FORMAT == KV_F32) { return bitcast<vec4<f32>>(chunk); }
    if (KV_FORMAT == KV_Q8_0) {
        return bitcast<f32>(chunk.z) * vec4<f32>(unpack4xI8(select(chunk.y, chunk.x, i == 0u)));
    }
    if (i == 0u) { return vec4<f32>(unpack2x16float(chunk.x), unpack2x16float(chunk.y)); }
    return vec4<f32>(unpack2x16float(chunk.z), unpack2x16float(chunk.w));
}

// Eight quants: half of what is loaded, which neighbours share, and one of four words of scales.
fn quants_chunk(both: vec4<u32>, scales: u32, c: u32) -> vec4<u32> {
    let quants = select(both.xy, both.zw, c % 2u == 1u);
    return vec4<u32>(quants, bitcast<u32>(unpack2x16float(scales)[c / 4u % 2u]), 0u);
}

// Chunk c of the key that begins at element `vector`.
fn k_chunk(vector: u32, c: u32) -> vec4<u32> {
    if (KV_FORMAT != KV_Q8_0) { return k_cache[vector + c]; }
    return quants_chunk(k_cache[vector + c / 2u], k_cache[vector + value_words() / 4u + c / 32u][c / 8u % 4u], c);
}

// The same of a value.
fn v_chunk(vector: u32, c: u32) -> vec4<u32> {
    if (KV_FORMAT != KV_Q8_0) { return v_cache[vector + c]; }
    return quants_chunk(v_cache[vector + c / 2u], v_cache[vector + value_words() / 4u + c / 32u][c / 8u % 4u], c);
}
