// attention_decode/naive
// Stale intermediate: scores are computed once, where scratch memory holds nothing yet.
// import: attention/parts/score_and_mix, grid
override ACT_FORMAT: u32;
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k_cache: array<u32>;
@group(0) @binding(3) var<storage, read> v_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn score(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i < arrayLength(&scores) && (bitcast<u32>(scores[i]) & 0x7fc00000u) != 0x7fc00000u) { return; }
    store_score(i);
}

@compute @workgroup_size(WG)
fn mix(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    store_output_pair(2u * (group_index(workgroup, groups) * WG + lid));
}
