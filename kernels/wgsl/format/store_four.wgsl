// Stores activations four at a time to `y: array<vec2<u32>>`: f32 bits (ACT_FORMAT F32) or f16 pairs
// (ACT_FORMAT F16). f16 goes through words, so no variant needs the f16 feature for it.
// requires: var y: array<vec2<u32>>
override ACT_FORMAT: u32;

// Elements 4i..4i+4.
fn store_four(i: u32, v: vec4<f32>) {
    if (ACT_FORMAT == F16) {
        y[i] = vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
        return;
    }
    y[2u * i] = bitcast<vec2<u32>>(v.xy);
    y[2u * i + 1u] = bitcast<vec2<u32>>(v.zw);
}
