// kv_append/naive: one invocation a 32-bit word of the cache.
//
//   cache[h][position % KV_SIZE][d] = new[h][d]   for K and V
//   qkv: [q | k | v] x HEAD_DIM   caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//
// Idea: the slot is position modulo capacity, so a full cache and a sliding-window ring are the
// same code; f16 is packed two values a word and needs no f16 feature. Who has a word of q8_0 looks at its
// whole block, or two of them for their scales.
// import: kv/quants, kv/vector
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<u32>;

// The largest magnitude of a block of the head that begins at `head` in qkv.
fn largest_to_append(head: u32, block: u32) -> f32 {
    var most = 0.0;
    for (var e = block * KV_BLOCK; e < min((block + 1u) * KV_BLOCK, HEAD_DIM); e++) {
        most = larger_magnitude(most, qkv[head + e]);
    }
    return most;
}

// Word w of that head as a cache holds it.
fn cache_word(head: u32, w: u32) -> u32 {
    if (KV_FORMAT == KV_F32) { return bitcast<u32>(qkv[head + w]); }
    if (KV_FORMAT == KV_F16) { return pack2x16float(vec2<f32>(qkv[head + 2u * w], qkv[head + 2u * w + 1u])); }
    if (w >= value_words()) {
        let block = 2u * (w - value_words());
        return scales_word(vec2<f32>(largest_to_append(head, block), largest_to_append(head, block + 1u)));
    }
    var four = vec4<f32>(0.0);
    for (var i = 0u; i < 4u; i++) {
        if (4u * w + i < HEAD_DIM) { four[i] = qkv[head + 4u * w + i]; }
    }
    return quants_word(four, largest_to_append(head, 4u * w / KV_BLOCK));
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let words = vector_words();
    if (id.x >= KV_HEADS * words) { return; }
    let head = id.x / words;
    let w = id.x % words;
    let to = (head * KV_SIZE + state[POSITION] % KV_SIZE) * words + w;
    let k = (KV_HEADS * Q_PER_KV + head) * HEAD_DIM;
    k_cache[to] = cache_word(k, w);
    v_cache[to] = cache_word(k + KV_HEADS * HEAD_DIM, w);
}
