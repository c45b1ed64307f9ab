// norm_gemv/workgroup_q: LANES invocations a row over quantised weights; no subgroups needed.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K) quantised, SoA-repacked  x, g: (K), f32   WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: as planes, joined by a tree in workgroup memory. The rung for adapters and browsers without
// subgroup operations.
// import: grid, matvec/epilogue/store, matvec/prologue/rms, matvec/rows/soa_rms
// import: matvec/schedule/tree
override Y_OFFSET: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    planes_tree(group_index(workgroup, groups), lid, 0u);
}
