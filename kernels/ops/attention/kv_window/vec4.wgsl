// kv_window/vec4: one invocation sixteen bytes.
//
// Idea: 16-byte loads and stores.
// import: attention/parts/window_move, grid, kv/vector
override WG: u32 = 64u;

@group(0) @binding(1) var<storage, read_write> k_cache: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> k_rows: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> v_rows: array<vec4<u32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let unit = window_move(group_index(workgroup, groups) * WG + lid, vector_words() / 4u);
    if (!unit.any) { return; }
    if (WINDOW_MOVE == WINDOW_TO_ROWS) {
        k_rows[unit.row] = k_cache[unit.slot];
        v_rows[unit.row] = v_cache[unit.slot];
    } else {
        k_cache[unit.slot] = k_rows[unit.row];
        v_cache[unit.slot] = v_rows[unit.row];
    }
}
