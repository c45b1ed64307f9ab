// Four KV-cache values at a time from caches declared as array<vec2<u32>>: with f16 one element of the array
// holds them, with f32 two, with q8_0 half of one. `i` counts groups of four, HEAD_DIM / 4 to a vector.
// import: kv/vector
// requires: override HEAD_DIM: u32
// requires: var k_cache, v_cache: array<vec2<u32>>

// Words of q8_0: the quants of group i, and the scale of its block beside a neighbour's.
struct KvQuants { quants: u32, scale: u32, half: u32 }

fn kv_quants_at(i: u32) -> KvQuants {
    let vector = i / (HEAD_DIM / 4u) * vector_words();
    let four = i % (HEAD_DIM / 4u);
    return KvQuants(vector + four, vector + value_words() + four / 16u, four / 8u % 2u);
}

fn k_four(i: u32) -> vec4<f32> {
    if (KV_FORMAT == KV_F32) {
        return bitcast<vec4<f32>>(vec4<u32>(k_cache[2u * i], k_cache[2u * i + 1u]));
    }
    if (KV_FORMAT == KV_Q8_0) {
        let at = kv_quants_at(i);
        let scale = unpack2x16float(k_cache[at.scale / 2u][at.scale % 2u])[at.half];
        return scale * vec4<f32>(unpack4xI8(k_cache[at.quants / 2u][at.quants % 2u]));
    }
    let w = k_cache[i];
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}

fn v_four(i: u32) -> vec4<f32> {
    if (KV_FORMAT == KV_F32) {
        return bitcast<vec4<f32>>(vec4<u32>(v_cache[2u * i], v_cache[2u * i + 1u]));
    }
    if (KV_FORMAT == KV_Q8_0) {
        let at = kv_quants_at(i);
        let scale = unpack2x16float(v_cache[at.scale / 2u][at.scale % 2u])[at.half];
        return scale * vec4<f32>(unpack4xI8(v_cache[at.quants / 2u][at.quants % 2u]));
    }
    let w = v_cache[i];
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}
