// The RMSNorm of x for chunks of 16 bytes. Its factor is one number, so it waits until the end:
// every lane adds up w * x * g and x^2 of its chunks, and no load waits for the norm.
// import: format/dense, matvec/prologue/masked, matvec/rows/dense16
// requires: var norm_weight, x: array<vec4<f32>>
override EPS: f32;
override WEIGHT_OFFSET: u32;

struct RowX { low: vec4<f32>, high: vec4<f32>, squares: f32 }
alias Partial = vec2<f32>; // sum of w * x * g, sum of x^2

fn row_x(c: u32) -> RowX {
    let offset = f32(WEIGHT_OFFSET);
    if (WEIGHT == F32) {
        let v = masked(c, x[c]);
        return RowX(v * (offset + masked(c, norm_weight[c])), vec4<f32>(0.0), dot(v, v));
    }
    let a = masked(2u * c, x[2u * c]);
    let b = masked(2u * c + 1u, x[2u * c + 1u]);
    return RowX(
        a * (offset + masked(2u * c, norm_weight[2u * c])),
        b * (offset + masked(2u * c + 1u, norm_weight[2u * c + 1u])),
        dot(a, a) + dot(b, b),
    );
}

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial {
    if (WEIGHT == F32) { return vec2<f32>(dot(unpack_low(w), v.low), v.squares); }
    return vec2<f32>(dot(unpack_low(w), v.low) + dot(unpack_high(w), v.high), v.squares);
}

fn epilogue(total: Partial) -> f32 { return total.x * inverseSqrt(total.y / f32(K) + EPS); }
