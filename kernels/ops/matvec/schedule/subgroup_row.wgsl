// An SoA row to LANES lanes of a subgroup, four chunks in flight a lane, over x in workgroup memory.
// dot_tile_chunk(chunk, at, c, tile) is what chunk `at` of a stream adds, which is chunk c of x, staged from
// chunk `tile` on.
// import: matvec/prologue/x_tile, matvec/rows/soa
// requires: type Partial
// requires: override Y_OFFSET: u32
// requires: fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial
// requires: fn epilogue(sum: Partial) -> f32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

// Nothing past the end.
fn load_row_chunk(base: u32, first: u32, c: u32, end: u32) -> SoaChunk {
    if (c < end) { return load_soa_chunk(base, first + c); }
    return SoaChunk();
}

fn soa_row(group: u32, lid: u32, subgroup: u32, size: u32, lane: u32) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let rows = WG / LANES;
    let row = group * rows + slot;
    let live = slot < rows && row < ROWS;
    // Without a row of its own a group of lanes repeats the last one and drops the result.
    let base = stream_base(min(row, ROWS - 1u));
    let first = stream_chunk(min(row, ROWS - 1u));
    var sum = Partial();
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        let end = min(soa_row_chunks(), tile + TILE);
        let c = tile + lane % lanes;
        var w0 = load_row_chunk(base, first, c, end);
        var w1 = load_row_chunk(base, first, c + lanes, end);
        var w2 = load_row_chunk(base, first, c + 2u * lanes, end);
        var w3 = load_row_chunk(base, first, c + 3u * lanes, end);
        stage_x_tile(lid, 0u, tile);
        for (var c0 = c; c0 < end; c0 += 4u * lanes) {
            let c1 = c0 + lanes;
            let c2 = c1 + lanes;
            let c3 = c2 + lanes;
            sum += dot_tile_chunk(w0, first + c0, c0, tile);
            if (c1 < end) { sum += dot_tile_chunk(w1, first + c1, c1, tile); }
            if (c2 < end) { sum += dot_tile_chunk(w2, first + c2, c2, tile); }
            if (c3 < end) { sum += dot_tile_chunk(w3, first + c3, c3, tile); }
            if (c3 + lanes < end) {
                w0 = load_row_chunk(base, first, c3 + lanes, end);
                w1 = load_row_chunk(base, first, c3 + 2u * lanes, end);
                w2 = load_row_chunk(base, first, c3 + 3u * lanes, end);
                w3 = load_row_chunk(base, first, c3 + 4u * lanes, end);
            }
        }
        workgroupBarrier();
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (live && lane % lanes == 0u) { store_y(Y_OFFSET + row, epilogue(sum), old_y(Y_OFFSET + row)); }
}
