// matmul_rmsnorm_fused/two_pass_q: as two_pass, over quantised weights; no subgroups needed.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//   stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: the product of gemv_q/workgroup. The rung for adapters and browsers without subgroup operations.
// import: grid, matvec/epilogue/branch, matvec/prologue/plain, matvec/prologue/x_tile
// import: matvec/rows/soa, matvec/schedule/tree, norm/residual, norm/tree_sums
@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<f32>;

alias Partial = f32;

fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial {
    return dot_soa_chunk(chunk, at, load_x_tile(c - tile));
}

fn epilogue(sum: Partial) -> f32 { return sum; }

@compute @workgroup_size(WG)
fn product(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    planes_tree(group_index(workgroup, groups), lid, 0u);
}

@compute @workgroup_size(WG)
fn norms(@builtin(local_invocation_index) lid: u32) {
    residual_norm(NormLane(lid), NEXT_NORM == 1u);
}
