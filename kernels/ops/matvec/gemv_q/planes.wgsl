// gemv_q/planes: LANES lanes a row, four chunks in flight a lane.
//
//   y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]
//   W: (ROWS, K) quantised, SoA-repacked  x: (K) f32 or f16
//
// Idea: with the fields of a row's blocks apart every load is sixteen aligned bytes of quants, 32
// neighbours under one scale, coalesced across the lanes; scales come from their own plane at the
// same time instead of before. All of a round is issued before the first use. One row has all
// lanes (LANES 32) for matrices of few rows: the more lanes a row, the more of the GPU they fill.
// import: grid, matvec/prologue/plain, matvec/prologue/x_tile, matvec/rows/soa
// import: matvec/schedule/subgroup_row
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
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    planes_row(group_index(workgroup, groups), lid, subgroup, size, lane);
}
