// The heads of tokens, one invocation each, into q and the caches.
// import: kv/quants, kv/vector, rope/head_norm, rope/head_scale, rope/slot
// requires: var k_cache, v_cache: array<u32>
// requires: var q, qkv: array<f32>
// requires: var rope: array<vec2<f32>>
// requires: fn bias_at(at: u32) -> f32
override ROPE_STYLE: u32;
override QKV_BIAS: u32 = BIAS_NONE;

// Element e of head `row` of all tokens' heads, with its bias.
fn qkv_element(row: u32, e: u32) -> f32 {
    let product = qkv[row * HEAD_DIM + e];
    if (QKV_BIAS == BIAS_NONE) { return product; }
    return product + bias_at(row % (KV_HEADS * (Q_PER_KV + 2u)) * HEAD_DIM + e);
}

// Element e of a token's query or key head, normed and rotated.
fn rotated_element(token: u32, head: u32, e: u32, scale: f32) -> f32 {
    let half = HEAD_DIM / 2u;
    let pair = select(e % half, e / 2u, ROPE_STYLE == ROPE_INTERLEAVED);
    let first = select(e < half, e % 2u == 0u, ROPE_STYLE == ROPE_INTERLEAVED);
    let i = select(pair, 2u * pair, ROPE_STYLE == ROPE_INTERLEAVED);
    let j = select(pair + half, 2u * pair + 1u, ROPE_STYLE == ROPE_INTERLEAVED);
    let turn = rope[position_of(token) * half + pair];
    let row = token * KV_HEADS * (Q_PER_KV + 2u) + head;
    let a = qkv_element(row, i) * scale * head_norm_weight(head, i);
    let b = qkv_element(row, j) * scale * head_norm_weight(head, j);
    return select(a * turn.y + b * turn.x, a * turn.x - b * turn.y, first);
}

// Element e of a key or value head as the cache is to hold it; zero behind the last.
fn appended_element(token: u32, head: u32, e: u32, scale: f32) -> f32 {
    if (e >= HEAD_DIM) { return 0.0; }
    if (head < KV_HEADS * (Q_PER_KV + 1u)) { return rotated_element(token, head, e, scale); }
    return qkv_element(token * KV_HEADS * (Q_PER_KV + 2u) + head, e);
}

fn largest_element(token: u32, head: u32, block: u32, scale: f32) -> f32 {
    var most = 0.0;
    for (var e = block * KV_BLOCK; e < (block + 1u) * KV_BLOCK; e++) {
        most = larger_magnitude(most, appended_element(token, head, e, scale));
    }
    return most;
}

// Words of q8_0 from `vector` on.
fn append_quants(token: u32, head: u32, scale: f32, vector: u32) {
    let value = head >= KV_HEADS * (Q_PER_KV + 1u);
    for (var w = 0u; w < vector_words(); w++) {
        var word = 0u;
        if (w < value_words()) {
            var four = vec4<f32>(0.0);
            for (var i = 0u; i < 4u; i++) { four[i] = appended_element(token, head, 4u * w + i, scale); }
            word = quants_word(four, largest_element(token, head, 4u * w / KV_BLOCK, scale));
        } else {
            let block = 2u * (w - value_words());
            let first = largest_element(token, head, block, scale);
            word = scales_word(vec2<f32>(first, largest_element(token, head, block + 1u, scale)));
        }
        if (value) { v_cache[vector + w] = word; } else { k_cache[vector + w] = word; }
    }
}

// A query head goes to q, a key or value head into its cache.
fn append_head(token: u32, head: u32) {
    let row = token * KV_HEADS * (Q_PER_KV + 2u) + head;
    var scale = 1.0;
    if (QK_NORM == NORM_RMS) { scale = head_scale(head_squares(row, 0u, 1u)); }
    let keys = KV_HEADS * Q_PER_KV;
    let values = keys + KV_HEADS;
    let slot = slot_of(token);
    for (var e = 0u; e < HEAD_DIM; e += 2u) {
        var v = vec2<f32>(qkv_element(row, e), qkv_element(row, e + 1u));
        if (head < values) {
            v = vec2<f32>(rotated_element(token, head, e, scale), rotated_element(token, head, e + 1u, scale));
        }
        if (head < keys) {
            let at = (token * keys + head) * HEAD_DIM + e;
            q[at] = v.x;
            q[at + 1u] = v.y;
            continue;
        }
        if (slot == KV_SIZE) { return; }
        let stored = cache_head(token, head - select(keys, values, head >= values));
        if (KV_FORMAT == KV_Q8_0) {
            if (e == 0u) { append_quants(token, head, scale, (stored * KV_SIZE + slot) * vector_words()); }
            return;
        }
        let at = e + (stored * KV_SIZE + slot) * HEAD_DIM;
        if (KV_FORMAT == KV_F16) {
            let word = pack2x16float(v);
            if (head < values) { k_cache[at / 2u] = word; } else { v_cache[at / 2u] = word; }
        } else if (head < values) {
            k_cache[at] = bitcast<u32>(v.x);
            k_cache[at + 1u] = bitcast<u32>(v.y);
        } else {
            v_cache[at] = bitcast<u32>(v.x);
            v_cache[at + 1u] = bitcast<u32>(v.y);
        }
    }
}
