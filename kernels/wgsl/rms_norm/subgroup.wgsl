// rms_norm/subgroup: one workgroup a row, subgroup sums.
//
//   y[r][i] = x[r][i] / sqrt(mean_j x[r][j]^2 + EPS) * (OFFSET + weight[i])
//   x, y: (ROWS, N)  weight: (N)      OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: two barriers instead of the tree's log2(WG).
// uses: reduce_subgroup
override ROWS: u32;
override N: u32;
override EPS: f32;
override OFFSET: u32;
override WG: u32 = 512u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
    let scale = inverseSqrt(workgroup_sum(lane, subgroup, subgroups, sum) / f32(N) + EPS);
    for (var i = lid; i < N; i += WG) {
        y[base + i] = x[base + i] * scale * (f32(OFFSET) + weight[i]);
    }
}
