// Activations rounded to f16 where they are something else, in fragments of 16 x 16.
// import: format/weight_eight, matmul/parts/unit16, matmul/parts/x_words
// requires: var x_fragments: array<Unit, XS>
fn stage_x(at: u32, raw: Raw) {
    let e = decode_x(raw);
    x_fragments[at] = Unit(e.low);
    x_fragments[at + 1u] = Unit(e.high);
}

// f16 is all there is of x.
fn multiply_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC { return c; }
