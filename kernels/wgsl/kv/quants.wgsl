// Blocks of q8_0: a scale, the largest magnitude over 127, and quants, the values in units of it.
const KV_BLOCK: u32 = 32u;

// The larger magnitude. Magnitudes compare as their bits do, and a NaN, which a maximum of floats may
// drop, lies above all: it becomes the scale of its block.
fn larger_magnitude(most: f32, v: f32) -> f32 {
    return bitcast<f32>(max(bitcast<u32>(most), bitcast<u32>(v) & 0x7fffffffu));
}

// What a value is multiplied by to be a quant.
fn inverse_scale(most: f32) -> f32 {
    if (most > 0.0) { return 127.0 / most; }
    return 0.0;
}

fn quants_word(v: vec4<f32>, most: f32) -> u32 { return pack4xI8(vec4<i32>(round(v * inverse_scale(most)))); }

// Scales of two neighbours.
fn scales_word(most: vec2<f32>) -> u32 { return pack2x16float(most / 127.0); }
