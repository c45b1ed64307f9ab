// rms_norm/subgroup: one workgroup a row, subgroup sums.
//
// Idea: two barriers instead of the tree's log2(WG).
// import: format/store_pair, reduce/subgroups
override WG: u32 = 512u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let base = workgroup.x * N;
    var sum = 0.0;
    for (var i = lid; i < N; i += WG) { sum += x[base + i] * x[base + i]; }
    let scale = inverseSqrt(sum_of_subgroups(lane, subgroup, subgroups, sum) / f32(N) + EPS);
    for (var i = lid; 2u * i < N; i += WG) {
        let both = 2u * i + 1u < N;
        let at = base + 2u * i;
        var v = vec2<f32>(x[at] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i]), 0.0);
        if (both) { v.y = x[at + 1u] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i + 1u]); }
        store_pair(at, v, both);
    }
}
