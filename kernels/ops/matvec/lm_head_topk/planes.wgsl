// lm_head_topk/planes: LANES lanes to four quantised rows, sixteen bytes of quants a load.
//
//   (top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), y[r] = sum_k W[r][k] * x[k],
//   and of what earlier parts of W left; larger y first, of equal y the lower index
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16  top_*: (TOP_K)
//   lists: (workgroups, TOP_K)  merged: (MERGERS, TOP_K)
//
// Idea: gemv_q/planes_multicol with the rows of a workgroup one after another: x is staged and
// summed once for ROWS_PER_WG of them, and loads of the next four rows are issued while the last of
// these are used. Their logits are sorted in workgroup memory at the end, as in the other variants.
// import: grid, matvec/epilogue/topk, matvec/prologue/plain, matvec/schedule/head_rows, sort/list
// import: sort/merge
// import: grid, matvec/epilogue/topk, matvec/prologue/plain, matvec/schedule/head_rows, sort/list
// import: sort/merge
override FIRST_ROW: u32;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> top_values: array<f32>;
@group(0) @binding(3) var<storage, read_write> top_indices: array<u32>;
@group(0) @binding(4) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> merged: array<vec2<u32>>;

fn push_logit(row: u32, logit: f32) { list_entries[row % ROWS_PER_WG] = entry_of(logit, row); }

fn group_rows() -> u32 { return ROWS_PER_WG; }

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
    clear_rows(lid);
    weigh_rows(lid, group, subgroup, size, lane);
    store_group_list(lid, group);
}

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
