// embed/quantised: one invocation four elements of a quantised row; HIDDEN a multiple of 4.
//
// Idea: four quants are one word, or half of one that two invocations share; where their fields lie
// are numbers from the host. A row is so short that latency is all: one load of quants, one of
// scales, one 16-byte store.
// import: embed/parts/table_row, format/weight_four, grid
override WG: u32 = 64u;

@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> x: array<vec4<f32>>;

fn packed_word(i: u32) -> u32 { return table[i / 4u][i % 4u]; }
fn packed_chunk(i: u32) -> vec4<u32> { return table[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let fours = HIDDEN / 4u;
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N_TOKENS * fours) { return; }
    let row = table_row(i / fours);
    if (row >= VOCAB) { return; }
    let base = row * ROW_BYTES;
    let block = 4u * (i % fours) / BLOCK;
    let e = 4u * (i % fours) % BLOCK;
    x[i] = dequant_four(codes_four(base, block, e), scale_addend(base, block, e)) * SCALE;
}
