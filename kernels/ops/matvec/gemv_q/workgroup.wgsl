// gemv_q/workgroup: LANES invocations a row, summed through workgroup memory; no subgroups needed.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]
//   W: (ROWS, K) quantised, SoA-repacked  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS)
//
// Idea: the loads of `planes`, then a tree in workgroup memory. The rung for adapters and browsers
// without subgroup operations. Several columns are taken one after another: the weights of the
// later ones come from the cache.
// import: grid, matvec/epilogue/store, matvec/prologue/plain, matvec/prologue/x_tile
// import: matvec/rows/soa, matvec/schedule/tree
override N_VECTORS: u32;
override Y_OFFSET: u32;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

alias Partial = f32;

fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial {
    return dot_soa_chunk(chunk, at, load_x_tile(c - tile));
}

fn epilogue(sum: Partial) -> f32 { return sum; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    for (var col = 0u; col < N_VECTORS; col++) { planes_tree(group_index(workgroup, groups), lid, col); }
}
