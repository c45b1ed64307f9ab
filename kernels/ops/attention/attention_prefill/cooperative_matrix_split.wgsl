// attention_prefill/cooperative_matrix_split: cooperative_matrix, keys of a block split over workgroups.
//
//   y[i][h] = sum_t softmax_t(SCALE * q[i][h] . K[g][t]) * V[g][t]      i < N_TOKENS, g = h / Q_PER_KV
//   q: N_TOKENS rows of heads (Q_ROW q) or of heads and their KV heads (Q_ROW qkv), HEAD_DIM each, f32
//   y: (N_TOKENS, heads, HEAD_DIM), f32 or f16      caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//   query i stands in slot p = min(position + i, KV_SIZE - 1), or BEFORE + i where BEFORE slots hold what
//   came before; t runs over the slots of tokens up to p, with a window only over the last WINDOW of them
//
// Idea: a few tokens at the end of a long sequence are few blocks of rows, and each would walk all keys alone
// while most of a large GPU idles. Here up to SPLITS workgroups share the keys of a block, each as in
// cooperative_matrix, and a second stage combines their softmaxes. Flash-Decoding (Dao et al., 2023).
// import: attention/parts/prefill_cooperative, attention/parts/prefill_split, attention/parts/split_combine
enable f16;
enable wgpu_cooperative_matrix;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;
