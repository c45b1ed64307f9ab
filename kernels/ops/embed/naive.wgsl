// embed/naive: one invocation an element.
//
//   x[t][i] = table[tokens[position + t]][i] * SCALE      t < N_TOKENS
//   OF_EACH: tokens[position * N_TOKENS + t], the current one of each of N_TOKENS sequences
//   table: (VOCAB, HIDDEN)  x: (N_TOKENS, HIDDEN)
//
// Idea: the gather, nothing else, of any format. Gemma scales by sqrt(HIDDEN), the others by 1.
// import: embed/parts/table_row, format/weight_at, grid
override N_TOKENS: u32;
override HIDDEN: u32;
override SCALE: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

fn packed_word(i: u32) -> u32 { return table[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N_TOKENS * HIDDEN) { return; }
    let row = table_row(i / HIDDEN);
    if (row >= VOCAB) { return; }
    x[i] = weight_at(row, i % HIDDEN, HIDDEN) * SCALE;
}
