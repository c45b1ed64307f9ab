// attention_prefill/flash_split: flash with the keys of a block shared by several workgroups.
//
// Idea: a few tokens at the end of a long sequence are few blocks of rows, and each would walk all keys alone
// while most of a large GPU idles. Here up to SPLITS workgroups share the keys of a block, each as in
// flash, and a second stage combines their softmaxes. Flash-Decoding (Dao et al., 2023).
// import: attention/parts/prefill_flash, attention/parts/prefill_split, attention/parts/split_combine

@group(0) @binding(4) var<storage, read_write> tops: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;
