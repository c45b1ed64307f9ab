// attention_decode/naive: all scores stored, softmax recomputed by every output element.
//
//   y[h] = sum_t softmax_t(SCALE * q[h] . K[g][t]) * V[g][t]      g = h / GROUP
//   q: (heads, HEAD_DIM) f32   y: the same, f32 or f16   caches: (KV_HEADS, CAPACITY, HEAD_DIM)
//   t runs over min(position + 1, CAPACITY) slots; a ring needs no order, softmax has none
//
// Idea: the textbook in two dispatches. scores is (heads, CAPACITY) in device memory.
// uses: state, kv_scalar, acts_pair, grid
override GROUP: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override CAPACITY: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

fn slots() -> u32 { return min(state[POSITION] + 1u, CAPACITY); }

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    let head = i / CAPACITY;
    let t = i % CAPACITY;
    if (head >= KV_HEADS * GROUP || t >= slots()) { return; }
    let k = ((head / GROUP) * CAPACITY + t) * HEAD_DIM;
    var sum = 0.0;
    for (var d = 0u; d < HEAD_DIM; d++) { sum += q[head * HEAD_DIM + d] * k_at(k + d); }
    scores[i] = SCALE * sum;
}

// Element i of the output.
fn mixed(i: u32) -> f32 {
    let head = i / HEAD_DIM;
    let n = slots();
    var most = scores[head * CAPACITY];
    for (var t = 1u; t < n; t++) { most = max(most, scores[head * CAPACITY + t]); }
    let v = (head / GROUP) * CAPACITY * HEAD_DIM + i % HEAD_DIM;
    var norm = 0.0;
    var sum = 0.0;
    for (var t = 0u; t < n; t++) {
        let p = exp(scores[head * CAPACITY + t] - most);
        norm += p;
        sum += p * v_at(v + t * HEAD_DIM);
    }
    return sum / norm;
}

@compute @workgroup_size(WG)
fn mix(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Two elements an invocation: f16 shares words.
    let i = 2u * (group_index(workgroup, groups) * WG + lid);
    let elements = KV_HEADS * GROUP * HEAD_DIM;
    if (i >= elements) { return; }
    let both = i + 1u < elements;
    var second = 0.0;
    if (both) { second = mixed(i + 1u); }
    store_pair(i, vec2<f32>(mixed(i), second), both);
}
