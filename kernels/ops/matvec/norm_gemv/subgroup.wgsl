// norm_gemv/subgroup: one subgroup a row, the lane's whole slice in flight at once.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32           WEIGHT_OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: gemv/vec4 with the squares of x summed beside the product: the loads of weights wait for
// nothing, and one subgroupAdd of two numbers ends the row.
// import: grid, matvec/rows/rms16, matvec/schedule/share
override ROWS: u32;
override Y_OFFSET: u32;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 8u;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let count = (ROWS - 1u) / ROWS_PER_WG + 1u;
    let first = flat_index(workgroup, groups, count) * ROWS_PER_WG;
    let at_once = select(WG / max(SG, 1u), subgroups, SG == 0u);
    // Every subgroup runs as many iterations: subgroup operations need uniform control flow. Rows past
    // the end repeat the last one, and what they make is dropped.
    for (var turn = 0u; turn < ROWS_PER_WG; turn += at_once) {
        let r = turn + subgroup;
        let row = min(first + r, ROWS - 1u);
        let total = subgroupAdd(share(row, lane, sg));
        if (lane == 0u && r < ROWS_PER_WG && first + r < ROWS) { y[Y_OFFSET + row] = epilogue(total); }
    }
}
