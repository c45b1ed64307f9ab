// A row of the matrix for schedules of dense rows: 16-bit weights in chunks of 8 bytes. Neighbouring lanes
// then read neighbouring 16 bytes of x too, where chunks of 16 bytes need x in strides of 32: half the
// passes through the cache.
// import: format/dense
// requires: var weights: array<vec2<u32>>
// requires: var x: array<vec4<u32>>
override K: u32;
override ACT_FORMAT: u32;

alias Chunk = vec2<u32>;
alias RowX = vec4<f32>;
alias Partial = f32;

fn row_chunks() -> u32 { return (K + 3u) / 4u; }

// Rows are padded to 16 bytes.
fn load_chunk(row: u32, c: u32) -> Chunk { return weights[row * (2u * ((K + 7u) / 8u)) + c]; }

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
