// The words of a matrix as they lie in its buffer, for format/weight_four.
// requires: var weights: array<vec4<u32>>
fn packed_word(i: u32) -> u32 { return weights[i / 4u][i % 4u]; }
fn packed_chunk(i: u32) -> vec4<u32> { return weights[i]; }
