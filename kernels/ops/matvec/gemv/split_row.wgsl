// gemv/split_row: a thread group of LANES invocations a row, of any number.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]        W: (ROWS, K)  x: (K) f32 or f16, f32 accumulation
//
// Idea: few rows leave a large GPU idle unless each is read by many lanes; and a lane that waits
// for memory once wants few chunks, all in flight. 1152 rows of 1152 16-bit weights are 144 lanes
// with one chunk, rows of 6912 are 96 lanes with nine. With fewer lanes than a subgroup, several
// rows share one.
// import: matvec/epilogue/store, matvec/rows/dense, matvec/rows/dense16, matvec/schedule/team
override ROWS: u32;
override Y_OFFSET: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
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
