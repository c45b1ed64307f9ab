// Rows of dense weights in chunks of 16 bytes.
// import: format/dense
// requires: var weights: array<vec4<u32>>
override K: u32;

alias Chunk = vec4<u32>;

fn row_chunks() -> u32 {
    return (K + chunk_elements() - 1u) / chunk_elements();
}

fn load_chunk(row: u32, c: u32) -> Chunk { return weights[row * row_chunks() + c]; }
