// Attention whose length and grid come from the host: a score a workgroup, then an element.
struct Params { length: u32, head_dim: u32, slots: u32, heads_per_kv: u32, scale: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<f32>;
@group(0) @binding(3) var<storage, read> values: array<f32>;
@group(0) @binding(4) var<storage, read_write> scores: array<f32>;
@group(0) @binding(5) var<storage, read_write> result: array<f32>;
@compute @workgroup_size(1)
fn score(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) num: vec3<u32>) {
    let row = (wg.x / params.heads_per_kv * params.slots + wg.y) * params.head_dim;
    var sum = 0.0;
    for (var d = 0u; d < params.head_dim; d++) {
        sum += q[wg.x * params.head_dim + d] * keys[row + d];
    }
    scores[wg.x * num.y + wg.y] = sum * params.scale;
}
@compute @workgroup_size(1)
fn mix(@builtin(workgroup_id) wg: vec3<u32>) {
    let first = wg.x * params.length;
    var largest = -3.0e38;
    for (var t = 0u; t < params.length; t++) { largest = max(largest, scores[first + t]); }
    var sum = 0.0;
    for (var t = 0u; t < params.length; t++) { sum += exp(scores[first + t] - largest); }
    var mixed = 0.0;
    for (var t = 0u; t < params.length; t++) {
        let row = (wg.x / params.heads_per_kv * params.slots + t) * params.head_dim;
        mixed += exp(scores[first + t] - largest) * values[row + wg.y];
    }
    result[wg.x * params.head_dim + wg.y] = mixed / sum;
}
