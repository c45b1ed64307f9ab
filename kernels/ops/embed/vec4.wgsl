// embed/vec4: one invocation a sixteen-byte chunk.
//
//   x[i] = table[tokens[position]][i] * SCALE      table: (VOCAB, HIDDEN)  x: (HIDDEN)
//
// Idea: each chunk of the row is loaded once and all its elements are written by the invocation
// that loaded it.
// import: embed/parts/table_row, format/dense
override HIDDEN: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

fn store(at: u32, v: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (at + j < HIDDEN) { x[at + j] = v[j] * SCALE; }
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let chunks = (HIDDEN + chunk_elements() - 1u) / chunk_elements();
    if (id.x >= chunks) { return; }
    let row = table_row();
    if (row >= VOCAB) { return; }
    let chunk = table[row * chunks + id.x];
    let at = id.x * chunk_elements();
    store(at, unpack_low(chunk));
    if (WEIGHT != F32) { store(at + 4u, unpack_high(chunk)); }
}
