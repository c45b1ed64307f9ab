// Single KV-cache values from caches declared as array<u32>: f32 bits, f16 pairs, or four quants of q8_0 and,
// behind those of a vector, the scales of two blocks. `i` counts values, HEAD_DIM to a vector.
// import: kv/quants, kv/vector
// requires: override HEAD_DIM: u32
// requires: var k_cache: array<u32>
// requires: var v_cache: array<u32>

fn quant(word: u32, e: u32) -> f32 { return f32(extractBits(bitcast<i32>(word), e % 4u * 8u, 8u)); }

fn k_at(i: u32) -> f32 {
    if (KV_FORMAT == KV_F32) { return bitcast<f32>(k_cache[i]); }
    if (KV_FORMAT == KV_Q8_0) {
        let vector = i / HEAD_DIM * vector_words();
        let e = i % HEAD_DIM;
        let scales = unpack2x16float(k_cache[vector + value_words() + e / (2u * KV_BLOCK)]);
        return scales[e / KV_BLOCK % 2u] * quant(k_cache[vector + e / 4u], e);
    }
    return unpack2x16float(k_cache[i / 2u])[i % 2u];
}

fn v_at(i: u32) -> f32 {
    if (KV_FORMAT == KV_F32) { return bitcast<f32>(v_cache[i]); }
    if (KV_FORMAT == KV_Q8_0) {
        let vector = i / HEAD_DIM * vector_words();
        let e = i % HEAD_DIM;
        let scales = unpack2x16float(v_cache[vector + value_words() + e / (2u * KV_BLOCK)]);
        return scales[e / KV_BLOCK % 2u] * quant(v_cache[vector + e / 4u], e);
    }
    return unpack2x16float(v_cache[i / 2u])[i % 2u];
}
