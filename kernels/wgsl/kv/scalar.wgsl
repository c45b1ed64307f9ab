// Single KV-cache values from caches declared as array<u32>: f32 bits, f16 pairs, or four quants of q8_0 and,
// behind those of a vector, the scales of two blocks. `i` counts values, HEAD_DIM to a vector.
// import: kv/quants, kv/vector
// requires: override HEAD_DIM: u32
// requires: var k_cache, v_cache: array<u32>

// Where q8_0 has value i: the word of its quant, and that of its block's scale.
fn quant_and_scale(i: u32) -> vec2<u32> {
    let vector = i / HEAD_DIM * vector_words();
    let e = i % HEAD_DIM;
    return vec2<u32>(vector + e / 4u, vector + value_words() + e / (2u * KV_BLOCK));
}

// Value i, of these words.
fn dequantised(quants: u32, scales: u32, i: u32) -> f32 {
    let e = i % HEAD_DIM;
    let quant = extractBits(bitcast<i32>(quants), e % 4u * 8u, 8u);
    return unpack2x16float(scales)[e / KV_BLOCK % 2u] * f32(quant);
}

fn k_at(i: u32) -> f32 {
    if (KV_FORMAT == KV_F32) { return bitcast<f32>(k_cache[i]); }
    if (KV_FORMAT == KV_F16) { return unpack2x16float(k_cache[i / 2u])[i % 2u]; }
    let at = quant_and_scale(i);
    return dequantised(k_cache[at.x], k_cache[at.y], i);
}

fn v_at(i: u32) -> f32 {
    if (KV_FORMAT == KV_F32) { return bitcast<f32>(v_cache[i]); }
    if (KV_FORMAT == KV_F16) { return unpack2x16float(v_cache[i / 2u])[i % 2u]; }
    let at = quant_and_scale(i);
    return dequantised(v_cache[at.x], v_cache[at.y], i);
}
