// Moves between rows of heads and a ring (KV_SIZE, KV_HEADS, HEAD_DIM), which it writes.
override KV_HEADS: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override N_TOKENS: u32;
override WINDOW_MOVE: u32;
@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read_write> k_cache: array<f32>;
@group(0) @binding(2) var<storage, read_write> v_cache: array<f32>;
@group(0) @binding(3) var<storage, read_write> k_rows: array<f32>;
@group(0) @binding(4) var<storage, read_write> v_rows: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = group.x;
    let rows = head * (KV_SIZE + N_TOKENS) + KV_SIZE;
    let position = state[0];
    for (var d = i; d < HEAD_DIM; d += 32u) {
        if (WINDOW_MOVE == 0u) {
            for (var j = 1u; j <= min(KV_SIZE, position); j++) {
                let slot = (((position - j) % KV_SIZE) * KV_HEADS + head) * HEAD_DIM + d;
                k_rows[(rows - j) * HEAD_DIM + d] = k_cache[slot];
                v_rows[(rows - j) * HEAD_DIM + d] = v_cache[slot];
            }
        } else if (state[1] > position) {
            for (var j = 0u; j < min(N_TOKENS, state[1] - position); j++) {
                let slot = (((position + j) % KV_SIZE) * KV_HEADS + head) * HEAD_DIM + d;
                k_cache[slot] = k_rows[(rows + j) * HEAD_DIM + d];
                v_cache[slot] = v_rows[(rows + j) * HEAD_DIM + d];
            }
        }
    }
}
