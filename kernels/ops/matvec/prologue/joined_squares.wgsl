// The squares of what a chunk of an SoA row meets, for schedule/soa_gate_up_tree.
// import: matvec/prologue/joined_norm, matvec/rows/soa
fn chunk_squares(c: u32) -> f32 {
    let first = c * (soa_chunk_elements() / 4u);
    var sum = 0.0;
    for (var j = 0u; j < soa_chunk_elements() / 4u; j++) { sum += squares_of(first + j); }
    return sum;
}
