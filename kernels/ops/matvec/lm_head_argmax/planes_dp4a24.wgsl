// lm_head_argmax/planes_dp4a24: as gemv_q/planes_dp4a24, activations as integers of 23 bits.
//
//   token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16  best_*: (1), of the parts of W so far
//   partial_*: a candidate a workgroup
//
// Idea: a workgroup rounds x once and takes rows in many grid-stride iterations; each lane keeps the best of
// the rows whose products end in it.
// Source: own.
// import: grid, matvec/epilogue/argmax, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, step/choose, step/choose_workgroup
// import: grid, matvec/epilogue/argmax, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, step/choose, step/choose_workgroup
override FIRST_ROW: u32;
const PAIRED: bool = false;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> best_value: array<f32>;
@group(0) @binding(5) var<storage, read_write> best_index: array<u32>;
@group(0) @binding(6) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(7) var<storage, read_write> partial_indices: array<u32>;

var<private> best: Candidate;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { best = better(best, Candidate(product.value, FIRST_ROW + product.row)); }
}

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
    walk_rows(group, subgroup, size, lane);
    let all = workgroup_best(lid, best);
    if (lid == 0u && group < GRID) { store_group_best(group, all); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, GRID); }
