// attention_prefill/flash: blocks of query rows against tiles of 64 keys, sixteen by sixteen invocations.
//
//   y[i][h] = sum_t softmax_t(SCALE * q[i][h] . K[g][t]) * V[g][t]      i < N_TOKENS, g = h / Q_PER_KV
//   q: N_TOKENS rows of heads (Q_ROW q) or of heads and their KV heads (Q_ROW qkv), HEAD_DIM each, f32
//   y: (N_TOKENS, heads, HEAD_DIM), f32 or f16      caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//   query i stands in slot p = min(position + i, KV_SIZE - 1), or BEFORE + i where BEFORE slots hold what
//   came before; t runs over the slots of tokens up to p, with a window only over the last WINDOW of them
//
// Idea: FlashAttention (Dao et al., arXiv 2205.14135) as two matrix products in registers. A row is a
// query head of a token; a block has 16 * ROWS_EACH rows of one KV head, so the heads of a group share
// K and V. An invocation has ROWS_EACH rows and four keys of the scores, then the same rows and every
// sixteenth four of the values: each vector it reads from workgroup memory serves ROWS_EACH or
// four multiply-adds a component. The weights between the two products go through workgroup memory,
// with an online softmax (arXiv 1805.02867). Blocks with most keys start first.
// import: attention/parts/prefill_flash, attention/parts/prefill_whole

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;
