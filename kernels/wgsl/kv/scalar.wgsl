// Single KV-cache values from caches declared as array<u32>: f32 bits (KV_FORMAT F32) or f16 pairs (KV_FORMAT
// F16).
// requires: var k_cache: array<u32>
// requires: var v_cache: array<u32>
override KV_FORMAT: u32;

fn k_at(i: u32) -> f32 {
    if (KV_FORMAT == F32) { return bitcast<f32>(k_cache[i]); }
    return unpack2x16float(k_cache[i / 2u])[i % 2u];
}

fn v_at(i: u32) -> f32 {
    if (KV_FORMAT == F32) { return bitcast<f32>(v_cache[i]); }
    return unpack2x16float(v_cache[i / 2u])[i % 2u];
}
