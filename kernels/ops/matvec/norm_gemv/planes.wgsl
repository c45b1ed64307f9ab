// norm_gemv/planes: as gemv_q/planes, LANES lanes a row, over quantised weights.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K) quantised, SoA-repacked  x, g: (K), f32   WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: x times g goes to workgroup memory once; every row's lanes meet all of x, so each adds up the
// squares of its chunks beside the product, and the norm's scale is applied to the finished sum.
// import: grid, matvec/prologue/rms, matvec/rows/soa_rms, matvec/schedule/subgroup_row
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    planes_row(group_index(workgroup, groups), lid, subgroup, size, lane);
}
