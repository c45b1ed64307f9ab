// rms_norm/workgroup: one workgroup a row, a tree in workgroup memory.
//
// Idea: WG invocations stride over the row; the second read of x hits the cache.
// import: format/store_pair, reduce/tree
override WG: u32 = 256u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let base = workgroup.x * N;
    var sum = 0.0;
    for (var i = lid; i < N; i += WG) { sum += x[base + i] * x[base + i]; }
    let scale = inverseSqrt(workgroup_sum(lid, sum) / f32(N) + EPS);
    for (var i = lid; 2u * i < N; i += WG) {
        let both = 2u * i + 1u < N;
        let at = base + 2u * i;
        var v = vec2<f32>(x[at] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i]), 0.0);
        if (both) { v.y = x[at + 1u] * scale * (f32(WEIGHT_OFFSET) + weight[2u * i + 1u]); }
        store_pair(at, v, both);
    }
}
