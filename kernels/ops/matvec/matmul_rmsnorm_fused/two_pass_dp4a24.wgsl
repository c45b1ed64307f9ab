// matmul_rmsnorm_fused/two_pass_dp4a24: two_pass with the product of gemv_q/planes_dp4a24.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//   stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: the product over activations as integers of 23 bits, whose error is that of adding f32 products,
// and the norms in a workgroup that sums by subgroup operations.
// import: grid, matvec/epilogue/branch, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, norm/residual, reduce/subgroups
// import: grid, matvec/epilogue/branch, matvec/prologue/plain, matvec/prologue/three_digits
// import: matvec/prologue/unscaled, matvec/schedule/soa_int8, norm/residual, reduce/subgroups
const PAIRED: bool = false;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<f32>;

fn stored_row(row: u32) -> u32 { return row; }

fn old_of_row(row: u32) -> f32 { return 0.0; }

fn store_product(product: Product, lanes: u32) {
    if (product.live) { branch[product.row] = product.value; }
}

struct NormLane { lid: u32, lane: u32, subgroup: u32, subgroups: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 {
    return sum_of_subgroups(p.lane, p.subgroup, p.subgroups, value);
}

@compute @workgroup_size(WG)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    walk_rows(flat_index(workgroup, groups, GRID), subgroup, size, lane);
}

@compute @workgroup_size(WG)
fn norms(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    residual_norm(NormLane(lid, lane, subgroup, subgroups), NEXT_NORM == 1u);
}
