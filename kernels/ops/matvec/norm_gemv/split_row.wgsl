// norm_gemv/split_row: a thread group of LANES invocations a row, of any number.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32           WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: gemv/split_row with the squares of x summed beside the product; both sums meet in
// workgroup memory at the one barrier there is.
// import: matvec/epilogue/store, matvec/rows/rms16, matvec/schedule/team
override ROWS: u32;
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
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    split_row(take_place(workgroup, groups, lid, subgroup, size, lane));
}
