// attention_decode/naive: all scores stored, softmax recomputed by every output element.
//
//   y[h] = sum_t softmax_t(SCALE * q[h] . K[g][t]) * V[g][t]      g = h / Q_PER_KV
//   q: (heads, HEAD_DIM) f32   y: the same, f32 or f16   caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//   t runs over min(position + 1, KV_SIZE) slots; a ring needs no order, softmax has none
//
// Idea: the textbook in two dispatches. scores is (heads, KV_SIZE) in device memory.
// import: attention/parts/qk_and_pv, grid
override ACT_FORMAT: u32;
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    store_score(group_index(workgroup, groups) * WG + lid);
}

@compute @workgroup_size(WG)
fn weigh_values(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    store_output_pair(2u * (group_index(workgroup, groups) * WG + lid));
}
