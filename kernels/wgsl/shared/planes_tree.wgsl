// A row of planes to LANES invocations, summed through a tree in workgroup memory; no subgroups. The
// file that uses it has `weigh`, Partial and `finish` as for planes_row, FIRST, `held_y` and `store_y`.
override WG: u32 = 256u;
override LANES: u32 = 32u;

var<workgroup> slots: array<Partial, WG>;

// The row that is this invocation's, with vector `col` of x.
fn planes_tree(group: u32, lid: u32, col: u32) {
    let lane = lid % LANES;
    let row = group * (WG / LANES) + lid / LANES;
    // Past the end the last row again; the result is dropped.
    let base = row_base(min(row, ROWS - 1u));
    let first = row_first(min(row, ROWS - 1u));
    var sum = Partial();
    for (var tile = 0u; tile < row_chunks(); tile += TILE) {
        stage_x(lid, col, tile);
        let end = min(row_chunks(), tile + TILE);
        for (var c = tile + lane; c < end; c += LANES) {
            sum += weigh(load_chunk(base, first + c), first + c, c, tile);
        }
        workgroupBarrier();
    }
    slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { slots[lid] += slots[lid + step]; }
        workgroupBarrier();
    }
    if (lane == 0u && row < ROWS) { store_y(col * (FIRST + ROWS) + FIRST + row, finish(slots[lid]), held_y(col * (FIRST + ROWS) + FIRST + row)); }
}
