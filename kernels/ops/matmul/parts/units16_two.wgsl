// Activations as two f16, the first eleven bits and the rest rounded, in fragments of 16 x 16: 21 bits of
// them. What lies below 2^-24 is lost; magnitudes stay below 65504.
// import: format/weight_eight, math/eleven_bits, matmul/parts/unit16, matmul/parts/x_words
// requires: override STRIDE, XS: u32
// requires: var x_fragments: array<Unit, XS>
var<workgroup> x_rest: array<Unit, XS>;

fn stage_x(at: u32, raw: Raw) {
    let e = decode_x(raw);
    let low = eleven_bits(e.low);
    let high = eleven_bits(e.high);
    x_fragments[at] = Unit(low);
    x_fragments[at + 1u] = Unit(high);
    x_rest[at] = Unit(e.low - low);
    x_rest[at + 1u] = Unit(e.high - high);
}

fn multiply_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC {
    let a = coopLoadT<FragmentA>(&x_rest[at], STRIDE);
    return coopMultiplyAdd(a, b, c);
}
