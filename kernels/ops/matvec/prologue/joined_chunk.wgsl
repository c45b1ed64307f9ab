// prologue/joined_norm for schedule/gate_up_tree.
// import: format/dense, matvec/prologue/dot_chunk, matvec/prologue/joined_norm
struct NormedChunk { v: XChunk, squares: f32 }

fn load_normed_chunk(c: u32) -> NormedChunk {
    if (WEIGHT == F32) { return NormedChunk(XChunk(x_four(0u, c), vec4<f32>(0.0)), squares_of(c)); }
    let i = 2u * c;
    return NormedChunk(XChunk(x_four(0u, i), x_four(0u, i + 1u)), squares_of(i) + squares_of(i + 1u));
}
