// embed/quantised: one invocation four elements of a quantised row; HIDDEN a multiple of 4.
//
//   x[i] = table[tokens[position]][i] * SCALE      table: (VOCAB, HIDDEN)  x: (HIDDEN)
//
// Idea: four quants are one word, or half of one that two invocations share; where their fields lie
// are numbers from the host. A row is so short that latency is all: one load of quants, one of
// scales, one 16-byte store.
// import: embed/parts/table_row, format/weight_four
override HIDDEN: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;

fn packed_word(i: u32) -> u32 { return table[i / 4u][i % 4u]; }
fn packed_chunk(i: u32) -> vec4<u32> { return table[i]; }

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= HIDDEN / 4u) { return; }
    let row = table_row();
    if (row >= VOCAB) { return; }
    let base = row * ROW_BYTES;
    let block = 4u * id.x / BLOCK;
    let e = 4u * id.x % BLOCK;
    x[id.x] = dequant_four(codes_four(base, block, e), scale_addend(base, block, e)) * SCALE;
}
