// The vector of a row's dot product: `x` as it is (NORM_NONE), or the RMSNorm of `stream`. The norm's
// factor 1/rms is one number for all elements: it is applied to the sums, and the squares are
// summed on the way, so that no invocation waits for a pass of its own.
// import: format/dense, matvec/prologue/dot_chunk, matvec/prologue/masked, matvec/prologue/x_chunk
// import: matvec/rows/dense16
// requires: var norm_weight, stream: array<vec4<f32>>
override INPUT_NORM: u32;
override EPS: f32;

// A chunk of the vector, and the sum of its squares where the norm needs it.
struct NormedChunk { v: XChunk, squares: f32 }

fn load_normed_chunk(c: u32) -> NormedChunk {
    if (INPUT_NORM == NORM_NONE) { return NormedChunk(load_x_chunk(c), 0.0); }
    if (WEIGHT == F32) {
        let a = masked(c, stream[c]);
        return NormedChunk(XChunk(masked(c, a * norm_weight[c]), vec4<f32>(0.0)), dot(a, a));
    }
    let a = masked(2u * c, stream[2u * c]);
    let b = masked(2u * c + 1u, stream[2u * c + 1u]);
    let low = masked(2u * c, a * norm_weight[2u * c]);
    let high = masked(2u * c + 1u, b * norm_weight[2u * c + 1u]);
    return NormedChunk(XChunk(low, high), dot(a, a) + dot(b, b));
}

// What the sums are multiplied with, from the squares of all elements.
fn rms_factor(squares: f32) -> f32 {
    if (INPUT_NORM == NORM_NONE) { return 1.0; }
    return inverseSqrt(squares / f32(K) + EPS);
}
