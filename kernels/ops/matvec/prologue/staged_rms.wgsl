// What schedule/subgroup_row and schedule/tree add up where x goes through a norm.
// import: matvec/prologue/x_tile, matvec/rows/soa
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn squares_of(i: u32) -> f32
alias Partial = vec2<f32>; // product, squares

// What a chunk of weights and its chunk c of x, staged from chunk `tile` on, add.
fn dot_tile_chunk(chunk: SoaChunk, at: u32, c: u32, tile: u32) -> Partial {
    let first = c * (soa_chunk_elements() / 4u);
    var squares = 0.0;
    for (var i = first; i < first + soa_chunk_elements() / 4u; i++) { squares += squares_of(i); }
    return vec2<f32>(dot_soa_chunk(chunk, at, load_x_tile(c - tile)), squares);
}

fn epilogue(sum: Partial) -> f32 { return sum.x * rms_factor(sum.y); }
