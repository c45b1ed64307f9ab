// x as it is for chunks of 8 bytes: what lanes add up is the product.
// import: format/dense, matvec/rows/dense8
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;

alias RowX = vec4<f32>;
alias Partial = f32;

fn row_x(c: u32) -> RowX {
    var v: vec4<f32>;
    if (ACT_FORMAT == F32) {
        v = bitcast<vec4<f32>>(x[c]);
    } else {
        let half = select(x[c / 2u].xy, x[c / 2u].zw, c % 2u == 1u);
        v = vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y));
    }
    if (K % 4u == 0u) { return v; }
    let at = vec4<u32>(4u * c) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, at < vec4<u32>(K));
}

fn dot_row_chunk(w: Chunk, v: RowX) -> Partial {
    return dot(vec4<f32>(unpack_pair(w.x), unpack_pair(w.y)), v);
}

fn epilogue(total: Partial) -> f32 { return total; }
