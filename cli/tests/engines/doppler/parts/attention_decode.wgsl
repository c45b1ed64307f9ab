enable f16;
enable subgroups;
struct Uniforms {
    num_heads: u32, num_kv_heads: u32, head_dim: u32, kv_len: u32, seq_len: u32, scale: f32,
    is_causal: u32, start_pos: u32, attn_softcap: f32, sliding_window: u32, kv_len_source: u32,
    kv_start: u32, page_size: u32, kv_layout: u32, _pad: u32,
}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> Q: array<f32>;
@group(0) @binding(2) var<storage, read> K: array<f16>;
@group(0) @binding(3) var<storage, read> V: array<f16>;
@group(0) @binding(4) var<storage, read_write> output: array<f32>;
@group(0) @binding(5) var<storage, read> kv_len_buffer: array<u32>;
@group(0) @binding(6) var<storage, read> page_table: array<u32>;
fn score(head: u32, slot: u32) -> f32 {
    let row = (slot * u.num_kv_heads + head / (u.num_heads / u.num_kv_heads)) * u.head_dim;
    var sum = 0.0;
    for (var d = 0u; d < u.head_dim; d++) { sum += Q[head * u.head_dim + d] * f32(K[row + d]); }
    return sum * u.scale;
}
var<workgroup> scores: array<f32, 256>;
fn attend(head: u32, i: u32) {
    let d = min(i, u.head_dim - 1u);
    let kv_head = head / (u.num_heads / u.num_kv_heads);
    var length = u.kv_len;
    if (u.kv_len_source != 0u) { length = kv_len_buffer[0] + page_table[0]; }
    if (u.is_causal != 0u) { length = min(length, u.start_pos + 1u); }
    var largest = -3.0e38;
    var sum = 0.0;
    var mixed = 0.0;
    for (var first = 0u; first < length; first += 256u) {
        if (first + i < length) { scores[i] = score(head, first + i); }
        workgroupBarrier();
        for (var j = 0u; j < min(256u, length - first); j++) {
            let top = max(largest, scores[j]);
            let fade = exp(largest - top);
            let p = exp(scores[j] - top);
            let row = (first + j) * u.num_kv_heads + kv_head;
            sum = sum * fade + p;
            mixed = mixed * fade + p * f32(V[row * u.head_dim + d]);
            largest = top;
        }
        workgroupBarrier();
    }
    if (i < u.head_dim) { output[head * u.head_dim + i] = mixed / sum; }
}
