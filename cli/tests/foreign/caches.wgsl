// Attention over caches (KV_SIZE, KV_HEADS, HEAD_DIM). Mesa's software Vulkan ends an invocation's
// loops after 65,535 rounds, all of them counted together: hence few rounds for each slot.
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
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = group.x;
    let slots = min(state[0] + 1u, KV_SIZE);
    for (var d = i; d < HEAD_DIM; d += 64u) {
        var most = -1e30;
        var norm = 0.0;
        var sum = 0.0;
        for (var t = 0u; t < slots; t++) {
            let at = (t * KV_HEADS + head / Q_PER_KV) * HEAD_DIM;
            var score = 0.0;
            for (var c = 0u; c < HEAD_DIM; c += 4u) {
                let own = head * HEAD_DIM + c;
                score += q[own] * keys[at + c] + q[own + 1u] * keys[at + c + 1u];
                score += q[own + 2u] * keys[at + c + 2u] + q[own + 3u] * keys[at + c + 3u];
            }
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
