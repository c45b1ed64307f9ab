// In the place of x_four for norm_gemv over planes: x times the norm's weights, without the factor
// 1/rms, which is one number and is applied to the sum; and the squares that make it.
override EPS: f32;
override OFFSET: u32; // 0, or Gemma's 1

alias Partial = vec2<f32>; // product, squares

// Beyond K lies padding of unknown content, here zero.
fn bounded(i: u32, v: vec4<f32>) -> vec4<f32> {
    if (K % 32u == 0u) { return v; }
    let e = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, e < vec4<u32>(K));
}

fn is_past(i: u32) -> bool { return K % 32u != 0u && 4u * i >= K; }

// Elements 4i..4i+4. There is one vector.
fn x_four(col: u32, i: u32) -> vec4<f32> {
    if (is_past(i)) { return vec4<f32>(0.0); }
    return bounded(i, x[i] * (f32(OFFSET) + norm_weight[i]));
}

// What a chunk of weights and its chunk c of x, staged from chunk `tile` on, add.
fn weigh(chunk: Chunk, at: u32, c: u32, tile: u32) -> vec2<f32> {
    let first = c * (chunk_elements() / 4u);
    var squares = 0.0;
    for (var i = first; i < first + chunk_elements() / 4u; i++) {
        if (!is_past(i)) {
            let v = bounded(i, x[i]);
            squares += dot(v, v);
        }
    }
    return vec2<f32>(dot_chunk(chunk, at, load_x(c - tile)), squares);
}

fn finish(sum: vec2<f32>) -> f32 { return sum.x * inverseSqrt(sum.y / f32(K) + EPS); }
