// x as it is for chunks of 16 bytes: what lanes add up is the product.
// import: matvec/prologue/dot_chunk, matvec/prologue/x_chunk, matvec/rows/dense16
alias RowX = XChunk;
alias Partial = f32; // what lanes add up

fn row_x(c: u32) -> RowX { return load_x_chunk(c); }

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial { return dot_chunk(w, v); }

fn epilogue(total: Partial) -> f32 { return total; }
