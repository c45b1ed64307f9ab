// matmul_rmsnorm_fused/two_pass: the product on the whole GPU, then one workgroup; dense weights.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: a matrix wants every processor, a norm of a few kilobytes wants one workgroup: two
// dispatches, of which the second is latency only. All loads of a round are in flight together, as in
// gemv/workgroup. No subgroups needed.
// import: grid, matvec/epilogue/branch, matvec/rows/dense, matvec/rows/dense16
// import: matvec/schedule/share, norm/residual, norm/tree_sums, reduce/tree
override ROWS: u32;
override WG: u32 = 256u; // a power of two
override LANES: u32 = 32u; // invocations a row, a power of two

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<f32>;

@compute @workgroup_size(WG)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    let row = group_index(workgroup, groups) * (WG / LANES) + lid / LANES;
    var sum = 0.0;
    if (row < ROWS) { sum = share(row, lane, LANES); }
    reduce_slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { reduce_slots[lid] += reduce_slots[lid + step]; }
        workgroupBarrier();
    }
    if (lane == 0u && row < ROWS) { branch[row] = reduce_slots[lid]; }
}

@compute @workgroup_size(WG)
fn norms(@builtin(local_invocation_index) lid: u32) {
    residual_norm(NormLane(lid), NEXT_NORM == 1u);
}
