// attention_append/naive: three dispatches, one invocation a head, a score, two elements of y.
//
//   q, k, v = heads of qkv; q[h] = rope(norm(q[h])), k[g] = rope(norm(k[g]))       g = h / Q_PER_KV
//   K[g][position % KV_SIZE] = k[g];  V likewise = v[g]
//   y[h] = sum_t softmax_t(SCALE * q[h] . K[g][t]) * V[g][t]
//   norm(h) = h / sqrt(mean(h^2) + EPS) * w with NORM_RMS, else h; qk_norm: w of q, then w of k
//   QKV_BIAS added: first qkv += what follows them in qk_norm
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   ROPE_INTERLEAVED: pairs (2i, 2i+1); ROPE_NEOX: pairs (i, i + HEAD_DIM/2)
//   qkv: (SEQUENCES, [q | k | v] x HEAD_DIM) f32   y: (SEQUENCES, heads, HEAD_DIM) f32 or f16
//   caches: (SEQUENCES, KV_HEADS, KV_SIZE, HEAD_DIM)
//   t runs over min(position + 1, KV_SIZE) slots; a ring needs no order, softmax has none
//
// Idea: the formula: heads into q and the caches, scores (heads, KV_SIZE), then the output, all through
// device memory.
// import: attention/parts/qk_and_pv, grid, rope/append_head, rope/head_norm
override ACT_FORMAT: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> qk_norm: array<f32>;
@group(0) @binding(3) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<u32>;
@group(0) @binding(6) var<storage, read_write> q: array<f32>;
@group(0) @binding(7) var<storage, read_write> scores: array<f32>;
@group(0) @binding(8) var<storage, read_write> y: array<u32>;

fn bias_at(at: u32) -> f32 { return qk_norm[2u * HEAD_DIM + at]; }

fn norm_at(query: bool, e: u32) -> f32 { return qk_norm[select(HEAD_DIM + e, e, query)]; }

@compute @workgroup_size(1)
fn append(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let heads = KV_HEADS * (Q_PER_KV + 2u);
    append_head(workgroup.x / heads, workgroup.x % heads);
}

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
