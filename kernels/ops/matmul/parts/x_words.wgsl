// Eight activations at a time out of the rows of x, (N_TOKENS, K) tight, in f32 (ACT_FORMAT F32) or f16
// (ACT_FORMAT F16), in the two steps of format/weight_eight.
// import: format/eight, format/weight_eight
// requires: var x: array<vec4<u32>>
override N_TOKENS: u32;
override ACT_FORMAT: u32;

fn x_value(at: u32) -> f32 {
    if (ACT_FORMAT == F32) { return bitcast<f32>(x[at / 4u][at % 4u]); }
    return unpack2x16float(x[at / 8u][(at / 2u) % 4u])[at % 2u];
}

// Elements i..i+4 of the row that begins at `base` as f32 bits, zero beyond the row's end.
fn x_words(base: u32, i: u32) -> vec4<u32> {
    var v = vec4<f32>(0.0);
    if (i < K) { v.x = x_value(base + i); }
    if (i + 1u < K) { v.y = x_value(base + i + 1u); }
    if (i + 2u < K) { v.z = x_value(base + i + 2u); }
    if (i + 3u < K) { v.w = x_value(base + i + 3u); }
    return bitcast<vec4<u32>>(v);
}

// Loads elements i..i+8 of row m; zero beyond the row's end and beyond the last row. i is a
// multiple of 8. Rows of other lengths than multiples of 8 begin anywhere in a word.
fn load_x_words(m: u32, i: u32) -> Raw {
    let none = vec4<u32>(0u);
    if (m >= N_TOKENS || i >= K) { return Raw(none, none); }
    if (K % 8u != 0u) { return Raw(x_words(m * K, i), x_words(m * K, i + 4u)); }
    let at = (m * K + i) / 4u;
    if (ACT_FORMAT == F32) { return Raw(x[at], x[at + 1u]); }
    return Raw(x[at / 2u], none);
}

fn decode_x(raw: Raw) -> Eight {
    if (ACT_FORMAT == F32 || K % 8u != 0u) {
        return Eight(bitcast<vec4<f32>>(raw.a), bitcast<vec4<f32>>(raw.b));
    }
    return Eight(
        vec4<f32>(unpack2x16float(raw.a.x), unpack2x16float(raw.a.y)),
        vec4<f32>(unpack2x16float(raw.a.z), unpack2x16float(raw.a.w)),
    );
}
