// kv_window/naive: one invocation a word.
//
//   to_rows:  rows[h][KV_SIZE - j] = ring[h][(position - j) % KV_SIZE]       1 <= j <= min(KV_SIZE, position)
//   to_ring:  ring[h][(position + i) % KV_SIZE] = rows[h][KV_SIZE + i]       i < count, of one slot the last
//   count = min(N_TOKENS, prompt - position)         for K and for V
//   ring: (KV_HEADS, KV_SIZE, HEAD_DIM)   rows: (KV_HEADS, KV_SIZE + N_TOKENS, HEAD_DIM)
//
// Idea: the copy, a 32-bit word of K and of V at a time.
// import: attention/parts/window_move, grid, kv/vector
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<u32>;
@group(0) @binding(3) var<storage, read_write> k_rows: array<u32>;
@group(0) @binding(4) var<storage, read_write> v_rows: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let unit = window_move(group_index(workgroup, groups) * WG + lid, vector_words());
    if (!unit.any) { return; }
    if (WINDOW_MOVE == WINDOW_TO_ROWS) {
        k_rows[unit.row] = k_cache[unit.slot];
        v_rows[unit.row] = v_cache[unit.slot];
    } else {
        k_cache[unit.slot] = k_rows[unit.row];
        v_cache[unit.slot] = v_rows[unit.row];
    }
}
