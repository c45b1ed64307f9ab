// attention_decode/split_kv_workgroup: split_kv through workgroup memory; no subgroups needed.
//
// Idea: SPLITS workgroups a KV head, Q_PER_KV query heads together, a second stage that merges them,
// as in split_kv.
// import: attention/parts/cache_only, attention/parts/split_combine, attention/parts/split_workgroup
override SPLITS: u32 = 16u;

@group(0) @binding(4) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;
