// matmul_rmsnorm_fused/two_pass_subgroup: two_pass with the product of gemv/split_k; dense weights.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: subgroup sums in the place of trees in workgroup memory, and what a lane reads of x serves RUN rows.
// import: matvec/epilogue/branch, matvec/rows/dense, matvec/rows/dense16
// import: matvec/schedule/row_group, matvec/schedule/team, norm/residual, reduce/subgroups
override ROWS: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<f32>;

struct NormLane { lid: u32, lane: u32, subgroup: u32, subgroups: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 {
    return sum_of_subgroups(p.lane, p.subgroup, p.subgroups, value);
}

@compute @workgroup_size(WG)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    split_k(take_place(workgroup, groups, lid, subgroup, size, lane));
}

@compute @workgroup_size(WG)
fn norms(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    residual_norm(NormLane(lid, lane, subgroup, subgroups), NEXT_NORM == 1u);
}
