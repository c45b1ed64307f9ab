// Activations as two f16, the nearest one and what it leaves, in fragments of 16 x 16: 22 bits of them. What
// lies below 2^-24 is lost; magnitudes stay below 65504.
// import: format/weight_eight, matmul/parts/unit16, matmul/parts/x_words
// requires: override STRIDE: u32
// requires: override XS: u32
// requires: var x_fragments: array<Unit, XS>
var<workgroup> x_rest: array<Unit, XS>;

fn stage_x(at: u32, raw: Raw) {
    let e = decode_x(raw);
    let low = Unit(e.low);
    let high = Unit(e.high);
    x_fragments[at] = low;
    x_fragments[at + 1u] = high;
    x_rest[at] = Unit(e.low - vec4<f32>(low));
    x_rest[at + 1u] = Unit(e.high - vec4<f32>(high));
}

fn multiply_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC {
    let a = coopLoadT<FragmentA>(&x_rest[at], STRIDE);
    return coopMultiplyAdd(a, b, c);
}
