// Where quads of rope/heads go: queries to q, keys and values to the caches.
// import: rope/heads, rope/slot
// requires: var k_cache: array<u32>
// requires: var k_norm: array<vec2<f32>>
// requires: var q: array<vec2<f32>>
// requires: var q_norm: array<vec2<f32>>
// requires: var v_cache: array<u32>
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_FORMAT: u32;

fn norm_pair(query: bool, at: u32) -> vec2<f32> {
    if (query) { return q_norm[at]; }
    return k_norm[at];
}

// Scales, norms and rotates a token's quad and puts it where it belongs.
fn place(token: u32, head: u32, i: u32, v: Quad, scale: f32, w: Quad, t: vec4<f32>) {
    if (is_value(head)) {
        append_quad(cache_head(token, head - KV_HEADS * (Q_PER_KV + 1u)), i, v, slot_of(token), true);
        return;
    }
    let out = rotated_quad(Quad(v.low * scale * w.low, v.high * scale * w.high), t);
    if (is_query(head)) {
        let base = (token * KV_HEADS * Q_PER_KV + head) * (HEAD_DIM / 2u);
        q[base + low_at(i)] = out.low;
        q[base + high_at(i)] = out.high;
        return;
    }
    append_quad(cache_head(token, head - KV_HEADS * Q_PER_KV), i, out, slot_of(token), false);
}

fn append_quad(head: u32, i: u32, v: Quad, slot: u32, value: bool) {
    if (slot == KV_SIZE) { return; }
    let base = (head * KV_SIZE + slot) * (HEAD_DIM / 2u);
    store_head_pair(base + low_at(i), v.low, value);
    store_head_pair(base + high_at(i), v.high, value);
}

// Two neighbours of a cache, `at` counting pairs.
fn store_head_pair(at: u32, v: vec2<f32>, value: bool) {
    if (KV_FORMAT == F16) {
        if (value) { v_cache[at] = pack2x16float(v); } else { k_cache[at] = pack2x16float(v); }
        return;
    }
    if (value) {
        v_cache[2u * at] = bitcast<u32>(v.x);
        v_cache[2u * at + 1u] = bitcast<u32>(v.y);
    } else {
        k_cache[2u * at] = bitcast<u32>(v.x);
        k_cache[2u * at + 1u] = bitcast<u32>(v.y);
    }
}
