// attention_append/split_kv_workgroup: split_kv through workgroup memory; no subgroups needed.
//
// Idea: attention_decode/split_kv_workgroup whose workgroups make the new token's heads, one after the
// other.
// import: attention/parts/new_token, attention/parts/new_token_workgroup, attention/parts/split_combine
// import: attention/parts/split_workgroup
override SPLITS: u32 = 16u;

@group(0) @binding(1) var<storage, read> qkv: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read> qk_norm: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> rope: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> y: array<vec2<u32>>;
