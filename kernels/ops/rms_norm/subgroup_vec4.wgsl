// rms_norm/subgroup_vec4: one workgroup a row, sixteen bytes at a time; N a multiple of 4.
//
// Idea: a row is so short that latency is all. With an invocation for every four elements x stays
// in registers and the weight is on its way while the sum is made: one memory latency, not three.
// Longer rows are read again from the cache.
// import: format/store_four, reduce/subgroups
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> weight: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let fours = N / 4u;
    let base = workgroup.x * fours;
    let mine = min(lid, fours - 1u);
    let v = x[base + mine];
    let w = weight[mine] + f32(WEIGHT_OFFSET);
    var sum = select(0.0, dot(v, v), lid < fours);
    for (var i = lid + WG; i < fours; i += WG) { sum += dot(x[base + i], x[base + i]); }
    let scale = inverseSqrt(sum_of_subgroups(lane, subgroup, subgroups, sum) / f32(N) + EPS);
    if (lid < fours) { store_four(base + lid, v * scale * w); }
    for (var i = lid + WG; i < fours; i += WG) {
        store_four(base + i, x[base + i] * scale * (weight[i] + f32(WEIGHT_OFFSET)));
    }
}
