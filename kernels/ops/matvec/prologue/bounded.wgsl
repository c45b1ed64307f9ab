// Beyond K lies padding of unknown content, here zero.
// requires: override K: u32

fn bounded(i: u32, v: vec4<f32>) -> vec4<f32> {
    if (K % 32u == 0u) { return v; }
    let e = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, e < vec4<u32>(K));
}

fn is_past(i: u32) -> bool { return K % 32u != 0u && 4u * i >= K; }
