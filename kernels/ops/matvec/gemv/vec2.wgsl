// gemv/vec2: as split_row with loads of 8 bytes.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]        W: (ROWS, K)  x: (K) f32 or f16, f32 accumulation
//
// Idea: eight 16-bit weights meet 32 bytes of f32 activations, so lanes with 16 bytes of weights
// read x in strides of 32 and every load takes twice the passes through the cache. With 8 bytes
// of weights both streams are contiguous, and 1152 weights are 32 lanes x 9 loads without a rest.
// import: matvec/epilogue/store, matvec/rows/dense8, matvec/schedule/team
override ROWS: u32;
override Y_OFFSET: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
