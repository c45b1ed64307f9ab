// gemv/split_k: a thread group of LANES invocations over RUN rows at once.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]        W: (ROWS, K)  x: (K) f32 or f16, f32 accumulation
//
// Idea: x is twice the bytes of 16-bit weights and comes through the same cache; what a lane reads
// of it serves RUN rows. All RUN x (chunks a lane) loads of weights are in flight together; K is
// split over the subgroups of the thread group, which meet once in workgroup memory.
// import: matvec/epilogue/store, matvec/rows/dense, matvec/rows/dense16
// import: matvec/schedule/row_group, matvec/schedule/team
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
    split_k(take_place(workgroup, groups, lid, subgroup, size, lane));
}
