// Fragments of 16 x 16, staged eight bytes at a time; weights are rounded to f16 where they are something
// else.
// import: format/weight_eight
// requires: var w_fragments: array<Unit, WS>
alias FragmentA = coop_mat16x16<f16, A>;
alias FragmentB = coop_mat16x16<f16, B>;
alias FragmentC = coop_mat16x16<f32, C>;
const FRAG: u32 = 16u;

// Eight bytes a store.
alias Unit = vec4<f16>;
const UNIT: u32 = 4u;

fn stage_w(at: u32, raw: Raw, i: u32) {
    let e = decode_weights(raw, i);
    w_fragments[at] = Unit(e.low);
    w_fragments[at + 1u] = Unit(e.high);
}
