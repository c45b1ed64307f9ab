// attention_decode/split_kv: SPLITS workgroups a KV head, then a stage that merges them.
//
// Idea: as many workgroups as the machine holds read the cache once: the Q_PER_KV query heads of a KV
// head go together, and the slots are dealt out by what is filled now, so every split has work
// at every position. A lane has the loads of IN_FLIGHT rows of K and of V on their way while
// it computes with those before. Flash-Decoding (Dao et al., 2023) with online softmax (arXiv 1805.02867).
// import: attention/parts/cache_only, attention/parts/split_attend, attention/parts/split_combine
override SPLITS: u32 = 16u;

@group(0) @binding(4) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;

fn store_top(i: u32, top: vec2<f32>) { tops[i] = top; }

fn store_sum(i: u32, sum: vec4<f32>, norm: f32) { partials[i] = sum; }
