// EACH (1, 2 or 4) neighbouring SoA rows, loaded together.
//
//   stored_row(row)       the row of the matrix that is taken as row `row`
//   PAIRED                whether rows of an even and the next number must go to the same lanes
// import: matvec/rows/soa
// requires: override EACH: u32
// requires: const PAIRED: bool
// requires: fn stored_row(row: u32) -> u32
struct RowChunks { a: SoaChunk, b: SoaChunk, c: SoaChunk, d: SoaChunk }

// The first of EACH rows to load for rows `row` on: at the end the matrix's last ones, so that
// loads stay inside and rows lie a constant apart. Rows that belong together stay together.
fn slides() -> bool { return ROWS >= EACH && (!PAIRED || ROWS % EACH == 0u); }

fn first_row(row: u32) -> u32 {
    if (slides()) { return min(row, ROWS - EACH); }
    return min(row, (ROWS - 1u) / EACH * EACH);
}

fn row_after(first: u32, i: u32) -> u32 {
    if (slides()) { return first + i; }
    return min(first + i, ROWS - 1u);
}

fn load_row(first: u32, i: u32, c: u32) -> SoaChunk {
    let row = stored_row(row_after(first, i));
    return load_soa_chunk(stream_base(row), stream_chunk(row) + c);
}

// Chunk c of each row.
fn load_row_chunks(first: u32, c: u32) -> RowChunks {
    var rows: RowChunks;
    rows.a = load_row(first, 0u, c);
    if (EACH > 1u) { rows.b = load_row(first, 1u, c); }
    if (EACH > 2u) {
        rows.c = load_row(first, 2u, c);
        rows.d = load_row(first, 3u, c);
    }
    return rows;
}
