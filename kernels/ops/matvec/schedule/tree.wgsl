// An SoA row to LANES invocations, summed through a tree in workgroup memory; no subgroups.
// import: matvec/prologue/x_tile, matvec/rows/soa
// import: matvec/epilogue/rows_of_y
// requires: type Partial
// requires: fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial
// requires: fn epilogue(sum: Partial) -> f32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u;

var<workgroup> tree_slots: array<Partial, WG>;

// The product of this invocation's row and a vector.
fn soa_tree(group: u32, lid: u32, vector: u32) {
    let lane = lid % LANES;
    let row = group * (WG / LANES) + lid / LANES;
    // Past the end the last row again; the result is dropped.
    let base = stream_base(min(row, ROWS - 1u));
    let first = stream_chunk(min(row, ROWS - 1u));
    var sum = Partial();
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        stage_x_tile(lid, vector, tile);
        let end = min(soa_row_chunks(), tile + TILE);
        for (var c = tile + lane; c < end; c += LANES) {
            sum += dot_tile_chunk(load_soa_chunk(base, first + c), first + c, c, tile);
        }
        workgroupBarrier();
    }
    tree_slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { tree_slots[lid] += tree_slots[lid + step]; }
        workgroupBarrier();
    }
    if (lane == 0u && row < ROWS) {
        store_y(
            y_at(vector, row), epilogue(tree_slots[lid]),
            old_y(y_at(vector, row)),
        );
    }
}
