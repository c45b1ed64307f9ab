// act(gate) * up of neighbouring outputs, two at a time: two f16 make a word.
// import: format/store_pair, math/activation
// requires: override N: u32

// Outputs `at` and `at` + 1 from (gate, up) of each; the second may lie beyond the end.
fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>) {
    let both = at + 1u < N;
    let v = vec2<f32>(activate(a.x), activate(b.x)) * vec2<f32>(a.y, b.y);
    store_pair(at, select(vec2<f32>(v.x, 0.0), v, both), both);
}
