// Attention of one token in tiles: a workgroup has ROWS query heads of a KV head.
// import: attention/parts/attended, attention/parts/tiled
// requires: override WG: u32
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override ROWS: u32 = 1u; // query heads of a workgroup

fn row_query(row: u32) -> u32 { return row * HEAD_DIM / 4u; }

fn row_output(row: u32) -> u32 { return row_query(row); }

fn row_slots(row: u32) -> vec2<u32> { return vec2<u32>(0u, attended()); }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Q_PER_KV is a multiple of ROWS.
    let first = workgroup.x * ROWS;
    attend_tiles(lid, first / Q_PER_KV, first, first + ROWS, 0u, attended());
}
