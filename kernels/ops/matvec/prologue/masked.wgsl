// Elements 4i..4i+4 of x; beyond K they are padding of unknown content, here zero.
// requires: override K: u32

fn masked(i: u32, v: vec4<f32>) -> vec4<f32> {
    if (K % 8u == 0u) { return v; }
    let at = vec4<u32>(4u * i) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), v, at < vec4<u32>(K));
}
