// Where quads of rope/heads go: queries to q, keys and values to the caches. A workgroup has one head; with
// q8_0 its key or value lies in workgroup memory until all of it is there.
// import: kv/quants, kv/vector, rope/heads, rope/slot
// requires: override WG: u32
// requires: var k_cache, v_cache: array<u32>
// requires: var k_norm, q, q_norm: array<vec2<f32>>
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;

override NEW_PAIRS: u32 = HEAD_DIM / 2u;
var<workgroup> new_pairs: array<vec2<f32>, NEW_PAIRS>;

fn bias_pair(at: u32) -> vec2<f32> { return q_norm[HEAD_DIM / 2u + at]; }

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
    if (KV_FORMAT == KV_Q8_0) {
        new_pairs[low_at(i)] = v.low;
        new_pairs[high_at(i)] = v.high;
        return;
    }
    let base = (head * KV_SIZE + slot) * (HEAD_DIM / 2u);
    store_head_pair(base + low_at(i), v.low, value);
    store_head_pair(base + high_at(i), v.high, value);
}

// Two neighbours of a cache, `at` counting pairs.
fn store_head_pair(at: u32, v: vec2<f32>, value: bool) {
    if (KV_FORMAT == KV_F16) {
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

// The largest magnitude of a block of the new key or value; of none behind its end.
fn largest_new(block: u32) -> f32 {
    var most = 0.0;
    for (var at = block * KV_BLOCK / 2u; at < min((block + 1u) * KV_BLOCK, HEAD_DIM) / 2u; at++) {
        most = larger_magnitude(larger_magnitude(most, new_pairs[at].x), new_pairs[at].y);
    }
    return most;
}

// What is left to do when all quads of a head are placed.
fn place_quants(token: u32, head: u32, lid: u32) {
    if (KV_FORMAT == KV_Q8_0) {
        workgroupBarrier();
        let slot = slot_of(token);
        if (!is_query(head) && slot < KV_SIZE) {
            let value = is_value(head);
            let own = head - KV_HEADS * select(Q_PER_KV, Q_PER_KV + 1u, value);
            let vector = (cache_head(token, own) * KV_SIZE + slot) * vector_words();
            for (var w = lid; w < vector_words(); w += WG) {
                var word = 0u;
                if (4u * w < HEAD_DIM) {
                    let four = vec4<f32>(new_pairs[2u * w], new_pairs[2u * w + 1u]);
                    word = quants_word(four, largest_new(4u * w / KV_BLOCK));
                } else if (w >= value_words()) {
                    let block = 2u * (w - value_words());
                    word = scales_word(vec2<f32>(largest_new(block), largest_new(block + 1u)));
                }
                if (value) { v_cache[vector + w] = word; } else { k_cache[vector + w] = word; }
            }
        }
    }
}
