// qkv_rope_append/naive: one invocation a head.
//
//   q[h] = rope(norm(qkv.q[h], q_norm))                       KV_HEADS*Q_PER_KV query heads
//   k_cache[h][position % KV_SIZE] = rope(norm(qkv.k[h], k_norm));  v_cache likewise = qkv.v[h]
//   norm(h, w) = h / sqrt(mean(h^2) + EPS) * w with NORM_RMS, else h
//   rope: (a, b) -> (a cos - b sin, a sin + b cos) for each pair, angles from the rope table;
//   ROPE_INTERLEAVED: pairs (2i, 2i+1), interleaved; 1: pairs (i, i + HEAD_DIM/2), NeoX
//   qkv: [q | k | v] x HEAD_DIM  q: heads x HEAD_DIM  caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//
// Idea: the formula, serially, element by element.
// import: rope/append_head, rope/two_norms
override KV_FORMAT: u32;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> q_norm: array<f32>;
@group(0) @binding(3) var<storage, read> k_norm: array<f32>;
@group(0) @binding(4) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) { append_head(workgroup.x); }
