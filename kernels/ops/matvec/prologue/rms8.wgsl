// The RMSNorm of x for chunks of 8 bytes; see prologue/rms16.
// import: format/dense, matvec/rows/dense8
// requires: var norm_weight, x: array<vec4<f32>>
override EPS: f32;
override WEIGHT_OFFSET: u32;

struct RowX { scaled: vec4<f32>, squares: f32 }
alias Partial = vec2<f32>; // sum of w * x * g, sum of x^2

fn masked_four(i: u32, v: vec4<f32>) -> vec4<f32> {
    if (K % 4u == 0u) { return v; }
    let at = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, at < vec4<u32>(K));
}

fn row_x(c: u32) -> RowX {
    let v = masked_four(c, x[c]);
    return RowX(v * (f32(WEIGHT_OFFSET) + masked_four(c, norm_weight[c])), dot(v, v));
}

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial {
    let four = vec4<f32>(unpack_pair(w.x), unpack_pair(w.y));
    return vec2<f32>(dot(four, v.scaled), v.squares);
}

fn epilogue(total: Partial) -> f32 { return total.x * inverseSqrt(total.y / f32(K) + EPS); }
