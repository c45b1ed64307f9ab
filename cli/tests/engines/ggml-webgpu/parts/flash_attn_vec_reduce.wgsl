struct Params {
    nrows: u32, seq_len_q: u32, n_heads: u32, offset_dst: u32, nwg: u32,
    tmp_data_base: u32, tmp_stats_base: u32,
}
@group(0) @binding(0) var<storage, read_write> tmp: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<vec4<f32>>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(HEAD / 4u)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    if (wg.x >= params.nrows) { return; }
    let stats = params.tmp_stats_base + wg.x * 2u * params.nwg;
    var top = -1e9;
    for (var n = 0u; n < params.nwg; n++) { top = max(top, tmp[stats + 2u * n + 1u]); }
    var sum = 0.0;
    var o = vec4(0.0);
    for (var n = 0u; n < params.nwg; n++) {
        let p = exp(tmp[stats + 2u * n + 1u] - top);
        let part = params.tmp_data_base + (wg.x * params.nwg + n) * HEAD + i * 4u;
        o += p * vec4(tmp[part], tmp[part + 1u], tmp[part + 2u], tmp[part + 3u]);
        sum += p * tmp[stats + 2u * n];
    }
    dst[params.offset_dst / 4u + wg.x * HEAD / 4u + i] = o / sum;
}
