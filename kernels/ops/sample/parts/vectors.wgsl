// Logits as vectors of four.
// import: sample/parts/sampling
// requires: override N: u32
// requires: var logits: array<vec4<f32>>
fn vectors() -> u32 { return (N + 3u) / 4u; }

// Keys of the logits 4v..4v+4, `seen` a bit each; none beyond N.
fn keys_of(v: u32, seen: u32) -> vec4<u32> {
    let l = logits[v];
    let keys = vec4<u32>(
        key_of(l.x, (seen & 1u) != 0u), key_of(l.y, (seen & 2u) != 0u),
        key_of(l.z, (seen & 4u) != 0u), key_of(l.w, (seen & 8u) != 0u),
    );
    if (N % 4u == 0u) { return keys; }
    return select(vec4<u32>(0u), keys, vec4<u32>(4u * v) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(N));
}
