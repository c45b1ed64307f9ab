// Dot product of packed weight chunks with `x: array<vec4<f32>>`, for any K.
override K: u32;

fn row_chunks() -> u32 {
    return (K + chunk_elements() - 1u) / chunk_elements();
}

// Elements 4i..4i+4 of x; beyond K they are padding of unknown content, here zero.
fn load_x(i: u32) -> vec4<f32> {
    let v = x[i];
    if (K % 8u == 0u) { return v; }
    let at = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, at < vec4<u32>(K));
}

struct XChunk { low: vec4<f32>, high: vec4<f32> }

fn load_x_chunk(c: u32) -> XChunk {
    if (WEIGHT == 0u) { return XChunk(load_x(c), vec4<f32>(0.0)); }
    return XChunk(load_x(2u * c), load_x(2u * c + 1u));
}

fn dot_chunk(chunk: vec4<u32>, v: XChunk) -> f32 {
    if (WEIGHT == 0u) { return dot(unpack_low(chunk), v.low); }
    return dot(unpack_low(chunk), v.low) + dot(unpack_high(chunk), v.high);
}
