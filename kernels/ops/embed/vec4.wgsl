// embed/vec4: one invocation a sixteen-byte chunk.
//
// Idea: each chunk of the row is loaded once and all its elements are written by the invocation
// that loaded it.
// import: embed/parts/table_row, format/dense, grid
override WG: u32 = 64u;

@group(0) @binding(2) var<storage, read> table: array<vec4<u32>>;

fn store(token: u32, at: u32, v: vec4<f32>) {
    for (var j = 0u; j < 4u; j++) {
        if (at + j < HIDDEN) { x[token * HIDDEN + at + j] = v[j] * SCALE; }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let chunks = (HIDDEN + chunk_elements() - 1u) / chunk_elements();
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N_TOKENS * chunks) { return; }
    let token = i / chunks;
    let row = table_row(token);
    if (row >= VOCAB) { return; }
    let chunk = table[row * chunks + i % chunks];
    let at = i % chunks * chunk_elements();
    store(token, at, unpack_low(chunk));
    if (WEIGHT != F32) { store(token, at + 4u, unpack_high(chunk)); }
}
