// lm_head_argmax/planes: LANES lanes to four quantised rows, sixteen bytes of quants a load.
//
//   token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16  best_*: (1), of the parts of W so far
//   partial_*: a candidate a workgroup
//
// Idea: gemv_q/planes_multicol with the rows of a workgroup one after another: x is staged and
// summed once for ROWS_PER_WG of them, loads of the next four rows are issued while the last of
// these are used, and each lane keeps the best of the rows whose sums end in it.
// import: grid, matvec/epilogue/argmax, matvec/prologue/plain, matvec/rows/soa
// import: matvec/schedule/head_rows, step/choose, step/choose_workgroup
// import: grid, matvec/epilogue/argmax, matvec/prologue/plain, matvec/rows/soa
// import: matvec/schedule/head_rows, step/choose, step/choose_workgroup
override FIRST_ROW: u32;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> best_value: array<f32>;
@group(0) @binding(5) var<storage, read_write> best_index: array<u32>;
@group(0) @binding(6) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(7) var<storage, read_write> partial_indices: array<u32>;

var<private> best: Candidate;

fn push_logit(row: u32, logit: f32) { best = better(best, Candidate(logit, FIRST_ROW + row)); }

fn groups() -> u32 { return (ROWS + ROWS_PER_WG - 1u) / ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let group = group_index(workgroup, grid);
    best = NOBODY;
    weigh_rows(lid, group, subgroup, size, lane);
    let all = workgroup_best(lid, best);
    if (lid == 0u && group < groups()) { store_group_best(group, all); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, groups()); }
