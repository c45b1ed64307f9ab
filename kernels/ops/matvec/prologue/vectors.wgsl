// Several vectors in x, one after another without padding: x is (N_VECTORS, K). rows/dense16 reads the first.
// import: format/dense, matvec/prologue/dot_chunk, matvec/prologue/x_chunk, matvec/rows/dense16
// requires: var x: array<vec4<u32>>
override N_VECTORS: u32 = 1u; // 1..=8

fn x_element(i: u32) -> f32 {
    if (ACT_FORMAT == F32) { return bitcast<f32>(x[i / 4u][i % 4u]); }
    return unpack2x16float(x[i / 8u][(i / 2u) % 4u])[i % 2u];
}

// Elements e..e+4 of a vector, zero beyond K.
fn x_from(vector: u32, e: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
    for (var j = 0u; j < 4u; j++) {
        if (e + j < K) { v[j] = x_element(vector * K + e + j); }
    }
    return v;
}

// Chunk c of a vector. Where K is no whole number of chunks, a vector begins anywhere.
fn load_vector_chunk(vector: u32, c: u32) -> XChunk {
    if (N_VECTORS == 1u || K % 8u == 0u) { return load_x_chunk(vector * row_chunks() + c); }
    let e = c * chunk_elements();
    if (WEIGHT == F32) { return XChunk(x_from(vector, e), vec4<f32>(0.0)); }
    return XChunk(x_from(vector, e), x_from(vector, e + 4u));
}
