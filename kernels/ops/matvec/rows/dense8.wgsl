// Rows of 16-bit weights in chunks of 8 bytes. Neighbouring lanes then read neighbouring 16 bytes of
// x too, where chunks of 16 bytes need x in strides of 32: half the passes through the cache.
// requires: var weights: array<vec2<u32>>
override K: u32;

alias Chunk = vec2<u32>;

fn row_chunks() -> u32 { return (K + 3u) / 4u; }

// Rows are padded to 16 bytes.
fn load_chunk(row: u32, c: u32) -> Chunk { return weights[row * (2u * ((K + 7u) / 8u)) + c]; }
