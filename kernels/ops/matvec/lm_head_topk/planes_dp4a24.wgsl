// lm_head_topk/planes_dp4a24: as gemv_q/planes_dp4a24, activations as integers of 23 bits.
//
//   (top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), y[r] = sum_k W[r][k] * x[k],
//   and of what earlier parts of W left; larger y first, of equal y the lower index
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16  top_*: (TOP_K)
//   lists: (workgroups, TOP_K)  merged: (MERGERS, TOP_K)
//
// Idea: a workgroup rounds x once and takes rows in many grid-stride iterations; their logits are sorted in
// workgroup memory at the end, as in the other variants.
// Source: own.
// import: grid, matvec/epilogue/topk, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, sort/list, sort/merge
// import: grid, matvec/epilogue/topk, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, sort/list, sort/merge
override FIRST_ROW: u32;
const PAIRED: bool = false;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> top_values: array<f32>;
@group(0) @binding(3) var<storage, read_write> top_indices: array<u32>;
@group(0) @binding(4) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> merged: array<vec2<u32>>;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { list_entries[product.at] = entry_of(product.value, product.row); }
}

fn group_rows() -> u32 { return TURNS * TURN_ROWS; }

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
    walk_rows(group, subgroup, size, lane);
    store_group_list(lid, group);
}

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
