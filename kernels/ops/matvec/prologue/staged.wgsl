// What schedule/subgroup_row and schedule/tree add up where x is as it is.
// import: matvec/prologue/plain, matvec/prologue/x_tile, matvec/rows/soa
alias Partial = f32;

fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial {
    return dot_soa_chunk(chunk, at, load_x_tile(c - tile));
}

fn epilogue(sum: Partial) -> f32 { return sum; }
