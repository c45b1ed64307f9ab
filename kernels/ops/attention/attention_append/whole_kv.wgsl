// attention_append/whole_kv: a workgroup a KV head, with all slots of the cache.
//
// Idea: split_kv pays a second stage, a dispatch or a wait, for using many processors. Where a KV head has
// so few slots that one workgroup asks for all of them in a round or two, it is done sooner alone: it has
// the whole softmax and stores y. Its rows are cut up as in split_kv, with one split.
// Source: own; Hazy Research, "Look Ma, No Bubbles!" (2025), has one partition a KV head at short contexts.
// import: attention/parts/new_token_subgroup, attention/parts/split_attend, format/store_four
override SPLITS: u32 = 1u; // never another

@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;

// Nobody else has a part of the softmax.
fn store_top(i: u32, top: vec2<f32>) {}

fn store_sum(i: u32, sum: vec4<f32>, norm: f32) { store_four(i, sum / norm); }
