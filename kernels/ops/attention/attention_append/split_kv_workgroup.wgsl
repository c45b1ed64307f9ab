// attention_append/split_kv_workgroup: split_kv through workgroup memory; no subgroups needed.
//
// Idea: attention_decode/split_kv_workgroup whose workgroups make the new token's heads, one after the
// other.
// import: attention/parts/new_token, attention/parts/new_token_workgroup, attention/parts/split_combine
// import: attention/parts/split_workgroup
override SPLITS: u32 = 16u;

@group(0) @binding(6) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(7) var<storage, read_write> partials: array<vec4<f32>>;
