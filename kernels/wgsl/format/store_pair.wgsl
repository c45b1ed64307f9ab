// Stores activations two at a time to `y: array<u32>`: f32 bits (ACT_FORMAT F32) or f16 pairs (ACT_FORMAT
// F16). f16 goes through words, so no variant needs the f16 feature for it.
// requires: override ACT_FORMAT: u32
// requires: var y: array<u32>

// Elements `at` and `at + 1`, `at` even with f16; `both` is false where the second lies beyond
// the end.
fn store_pair(at: u32, v: vec2<f32>, both: bool) {
    if (ACT_FORMAT == F16) {
        y[at / 2u] = pack2x16float(v);
        return;
    }
    y[at] = bitcast<u32>(v.x);
    if (both) { y[at + 1u] = bitcast<u32>(v.y); }
}
