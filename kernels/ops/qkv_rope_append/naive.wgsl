// qkv_rope_append/naive: one invocation a token's head.
//
//   q[t][h] = rope(norm(qkv.q[t][h], q_norm))         KV_HEADS*Q_PER_KV query heads, t < N_TOKENS
//   k_cache[h][slot t] = rope(norm(qkv.k[t][h], k_norm));  v_cache likewise = qkv.v[t][h]
//   slot t = (position + t) % KV_SIZE, or with BEFORE > 0 (BEFORE + t) % KV_SIZE
//   QKV_BIAS added: first q, k, v += the elements of q_norm behind its HEAD_DIM weights
//   norm(h, w) = h / sqrt(mean(h^2) + EPS) * w with NORM_RMS, else h
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   ROPE_INTERLEAVED: pairs (2i, 2i+1); ROPE_NEOX: pairs (i, i + HEAD_DIM/2)
//   qkv: N_TOKENS of [q | k | v] x HEAD_DIM  q: (N_TOKENS, heads, HEAD_DIM)
//   caches: (KV_HEADS, KV_SIZE, HEAD_DIM); of several tokens those beyond the prompt are not stored
//   OF_EACH: tokens of N_TOKENS sequences, all at the position; caches: one after the other
//
// Idea: the formula, serially, element by element.
// import: grid, rope/append_head, rope/head_norm, rope/slot, rope/two_norms

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<u32>;

fn bias_at(at: u32) -> f32 { return q_norm[HEAD_DIM + at]; }

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let heads = KV_HEADS * (Q_PER_KV + 2u);
    let row = group_index(workgroup, groups);
    if (row >= N_TOKENS * heads) { return; }
    append_head(row / heads, row % heads);
}
