// A row of the matrix for schedules of dense rows: weights in chunks of 16 bytes.
// import: matvec/rows/dense
// requires: var weights: array<vec4<u32>>
alias Chunk = vec4<u32>;
alias RowX = XChunk;
alias Partial = f32; // what lanes add up

fn load_chunk(row: u32, c: u32) -> Chunk { return weights[row * row_chunks() + c]; }

fn row_x(c: u32) -> RowX { return load_x_chunk(c); }

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial { return dot_chunk(w, v); }

fn epilogue(total: Partial) -> f32 { return total; }
