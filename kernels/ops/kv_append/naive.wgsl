// kv_append/naive: one invocation a 32-bit word of the cache.
//
//   cache[h][position % KV_SIZE][d] = new[h][d]   for K and V
//   qkv: [q | k | v] x HEAD_DIM   caches: (KV_HEADS, KV_SIZE, HEAD_DIM), f32 or f16 (KV_FORMAT)
//
// Idea: the slot is position modulo capacity, so a full cache and a sliding-window ring are the
// same code; f16 is packed two values a word and needs no f16 feature.
// import: step/state
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override KV_FORMAT: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read_write> v_cache: array<u32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let per_word = 1u + KV_FORMAT;
    let words = HEAD_DIM / per_word;
    let word = id.x;
    if (word >= KV_HEADS * words) { return; }
    let head = word / words;
    let d = word % words;
    let slot = state[POSITION] % KV_SIZE;
    let to = (head * KV_SIZE + slot) * words + d;
    let k = (KV_HEADS * Q_PER_KV + head) * HEAD_DIM + d * per_word;
    let v = k + KV_HEADS * HEAD_DIM;
    if (KV_FORMAT == F32) {
        k_cache[to] = bitcast<u32>(qkv[k]);
        v_cache[to] = bitcast<u32>(qkv[v]);
    } else {
        k_cache[to] = pack2x16float(vec2<f32>(qkv[k], qkv[k + 1u]));
        v_cache[to] = pack2x16float(vec2<f32>(qkv[v], qkv[v + 1u]));
    }
}
