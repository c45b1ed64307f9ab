// attention_prefill/tiled: ROWS query rows a workgroup share tiles of K and V in workgroup memory.
//
// Idea: a row is a query head of a token, and a KV head's rows go in blocks, so a tile of K and V is
// read once for ROWS of them; the Q_PER_KV heads of a token stand side by side. Tiles that no row of
// the block attends to are not read. Runs in 16 KiB of workgroup memory, without subgroups. Online
// softmax (arXiv 1805.02867).
// import: attention/parts/prefill_rows, attention/parts/tiled, grid
override WG: u32 = 128u;
override ROWS: u32 = 4u;
override TILE: u32 = 8u; // slots in workgroup memory

// Rows count on through the KV heads.
fn row_head(row: u32) -> u32 { return row / (N_TOKENS * Q_PER_KV) * Q_PER_KV + row % Q_PER_KV; }

fn row_token(row: u32) -> u32 { return row % (N_TOKENS * Q_PER_KV) / Q_PER_KV; }

fn row_query(row: u32) -> u32 { return query_start(row_token(row), row_head(row)) / 4u; }

fn row_output(row: u32) -> u32 {
    return (row_token(row) * heads() + row_head(row)) * HEAD_DIM / 4u;
}

fn row_slots(row: u32) -> vec2<u32> { return query_slots(row_token(row)); }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let blocks = (N_TOKENS * Q_PER_KV + ROWS - 1u) / ROWS;
    let group = group_index(workgroup, groups);
    if (group >= KV_HEADS * blocks) { return; }
    let kv_head = group / blocks;
    let first = kv_head * N_TOKENS * Q_PER_KV + group % blocks * ROWS;
    let rows = min(first + ROWS, (kv_head + 1u) * N_TOKENS * Q_PER_KV);
    attend_tiles(lid, kv_head, first, rows, row_slots(first).x, row_slots(rows - 1u).y);
}
