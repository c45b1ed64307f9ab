enable f16;
struct Params {
    offset_q: u32, offset_k: u32, offset_v: u32, offset_mask: u32, offset_sinks: u32,
    offset_dst: u32, n_heads: u32, seq_len_q: u32, seq_len_kv: u32,
    stride_q1: u32, stride_q2: u32, stride_q3: u32, stride_k1: u32, stride_k2: u32, stride_k3: u32,
    stride_v1: u32, stride_v2: u32, stride_v3: u32, stride_mask3: u32, q_per_kv: u32,
    scale: f32, max_bias: f32, logit_softcap: f32, n_head_log2: f32, m0: f32, m1: f32,
    tmp_data_base: u32, tmp_stats_base: u32, nwg: u32,
}
@group(0) @binding(0) var<storage, read_write> Q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> K: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read_write> V: array<vec4<f16>>;
@group(0) @binding(3) var<storage, read_write> tmp: array<f32>;
@group(0) @binding(4) var<storage, read_write> dst: array<vec4<f32>>;
@group(0) @binding(5) var<uniform> params: Params;
fn at(q: u32, k: u32) -> f32 { return dot(Q[q], vec4<f32>(K[k])); }
@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let head = wg.x / params.nwg;
    let group = head / params.q_per_kv;
    let q = (params.offset_q + head * params.stride_q2) / 4u;
    var top = -1e9;
    var sum = 0.0;
    var o: array<vec4<f32>, HEAD / 64u>;
    for (var t = wg.x % params.nwg; t < params.seq_len_kv; t += params.nwg) {
        let k = (params.offset_k + group * params.stride_k2 + t * params.stride_k1) / 4u;
        let v = (params.offset_v + group * params.stride_v2 + t * params.stride_v1) / 4u;
        var score = 0.0;
        for (var d = 0u; d < HEAD / 4u; d += 4u) {
            score += at(q + d, k + d) + at(q + d + 1u, k + d + 1u);
            score += at(q + d + 2u, k + d + 2u) + at(q + d + 3u, k + d + 3u);
        }
        let new_top = max(top, score * params.scale);
        let old = exp(top - new_top);
        let p = exp(score * params.scale - new_top);
        for (var n = 0u; n < HEAD / 64u; n++) {
            o[n] = o[n] * old + p * vec4<f32>(V[v + n * 16u + i]);
        }
        sum = sum * old + p;
        top = new_top;
    }
    for (var n = 0u; n < HEAD / 64u; n++) {
        let c = n * 16u + i;
        let to = params.tmp_data_base + wg.x * HEAD + c * 4u;
        if (params.nwg == 1u) { dst[params.offset_dst / 4u + head * HEAD / 4u + c] = o[n] / sum; }
        for (var e = 0u; e < 4u && params.nwg > 1u; e++) { tmp[to + e] = o[n][e]; }
    }
    let stats = params.tmp_stats_base + 2u * wg.x;
    if (i == 0u && params.nwg > 1u) {
        tmp[stats] = sum;
        tmp[stats + 1u] = top;
    }
}
