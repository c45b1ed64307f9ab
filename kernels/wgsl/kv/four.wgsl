// Four KV-cache values at a time from caches declared as array<vec2<u32>>: with f16 (KV_FORMAT F16) one
// element of the array holds them, with f32 (KV_FORMAT F32) two. `i` counts groups of four.
// requires: var k_cache: array<vec2<u32>>
// requires: var v_cache: array<vec2<u32>>
override KV_FORMAT: u32;

fn k_four(i: u32) -> vec4<f32> {
    if (KV_FORMAT == F32) {
        return bitcast<vec4<f32>>(vec4<u32>(k_cache[2u * i], k_cache[2u * i + 1u]));
    }
    let w = k_cache[i];
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}

fn v_four(i: u32) -> vec4<f32> {
    if (KV_FORMAT == F32) {
        return bitcast<vec4<f32>>(vec4<u32>(v_cache[2u * i], v_cache[2u * i + 1u]));
    }
    let w = v_cache[i];
    return vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y));
}
