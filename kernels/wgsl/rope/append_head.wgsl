// The heads of tokens, one invocation each, into q and the caches.
// import: rope/head_norm, rope/head_scale, rope/slot
// requires: override KV_FORMAT: u32
// requires: var k_cache: array<u32>
// requires: var q: array<f32>
// requires: var qkv: array<f32>
// requires: var rope: array<vec2<f32>>
// requires: var v_cache: array<u32>
override ROPE_STYLE: u32;

// Element e of a token's query or key head, normed and rotated.
fn rotated_element(token: u32, head: u32, e: u32, scale: f32) -> f32 {
    let half = HEAD_DIM / 2u;
    let pair = select(e % half, e / 2u, ROPE_STYLE == ROPE_INTERLEAVED);
    let first = select(e < half, e % 2u == 0u, ROPE_STYLE == ROPE_INTERLEAVED);
    let i = select(pair, 2u * pair, ROPE_STYLE == ROPE_INTERLEAVED);
    let j = select(pair + half, 2u * pair + 1u, ROPE_STYLE == ROPE_INTERLEAVED);
    let turn = rope[position_of(token) * half + pair];
    let row = (token * KV_HEADS * (Q_PER_KV + 2u) + head) * HEAD_DIM;
    let a = qkv[row + i] * scale * head_norm_weight(head, i);
    let b = qkv[row + j] * scale * head_norm_weight(head, j);
    return select(a * turn.y + b * turn.x, a * turn.x - b * turn.y, first);
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
        var v = vec2<f32>(qkv[row * HEAD_DIM + e], qkv[row * HEAD_DIM + e + 1u]);
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
        let at = e + (stored * KV_SIZE + slot) * HEAD_DIM;
        if (KV_FORMAT == F16) {
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
