// Attention over caches (KV_SIZE, KV_HEADS, HEAD_DIM).
override KV_HEADS: u32;
override Q_PER_KV: u32;
override HEAD_DIM: u32;
override KV_SIZE: u32;
override SCALE: f32;
@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = group.x;
    let slots = min(state[0] + 1u, KV_SIZE);
    for (var d = i; d < HEAD_DIM; d += 32u) {
        var most = -1e30;
        var norm = 0.0;
        var sum = 0.0;
        for (var t = 0u; t < slots; t++) {
            let at = (t * KV_HEADS + head / Q_PER_KV) * HEAD_DIM;
            var score = 0.0;
            for (var c = 0u; c < HEAD_DIM; c++) { score += q[head * HEAD_DIM + c] * keys[at + c]; }
            score *= SCALE;
            let next = max(most, score);
            let p = exp(score - next);
            norm = norm * exp(most - next) + p;
            sum = sum * exp(most - next) + p * values[at + d];
            most = next;
        }
        y[head * HEAD_DIM + d] = sum / norm;
    }
}
