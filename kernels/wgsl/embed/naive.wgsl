// embed/naive: one invocation an element.
//
//   x[i] = table[tokens[position]][i] * SCALE      table: (VOCAB, HIDDEN)  x: (HIDDEN)
//
// Idea: the gather, nothing else. Gemma scales by sqrt(HIDDEN), the others by 1. A token beyond
// the vocabulary reads row VOCAB-1; the host rejects such tokens before they get here.
// uses: state, weights
override HIDDEN: u32;
override VOCAB: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if (i >= HIDDEN) { return; }
    let token = min(tokens[state[POSITION]], VOCAB - 1u);
    let chunks = (HIDDEN + chunk_elements() - 1u) / chunk_elements();
    let chunk = table[token * chunks + i / chunk_elements()];
    let e = i % chunk_elements();
    let value = select(unpack_low(chunk)[e % 4u], unpack_high(chunk)[e % 4u], e >= 4u);
    x[i] = value * SCALE;
}
