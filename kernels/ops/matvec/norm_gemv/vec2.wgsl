// norm_gemv/vec2: as split_row with loads of 8 bytes.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32           WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: sixteen bytes of 16-bit weights meet 64 bytes of x and g, read in strides of 32: nine
// times the passes through the cache of the weights alone. With 8 bytes all three streams are
// contiguous, and five passes do.
// import: matvec/epilogue/store, matvec/rows/rms8, matvec/schedule/team
override ROWS: u32;
override Y_OFFSET: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec2<u32>>;
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
