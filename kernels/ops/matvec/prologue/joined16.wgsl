// prologue/joined_norm for chunks of 16 bytes: lanes add up the product and the squares of their chunks.
// import: format/dense, matvec/prologue/dot_chunk, matvec/prologue/joined, matvec/prologue/joined_norm
// import: matvec/rows/dense16
struct RowX { v: XChunk, squares: f32 }
alias Partial = vec2<f32>; // sum of w * x * g, sum of x^2

fn row_x(c: u32) -> RowX {
    if (WEIGHT == F32) { return RowX(XChunk(x_four(0u, c), vec4<f32>(0.0)), squares_of(c)); }
    let i = 2u * c;
    return RowX(XChunk(x_four(0u, i), x_four(0u, i + 1u)), squares_of(i) + squares_of(i + 1u));
}

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial { return vec2<f32>(dot_chunk(w, v.v), v.squares); }

fn epilogue(total: Partial) -> f32 { return total.x * rms_factor(total.y); }
