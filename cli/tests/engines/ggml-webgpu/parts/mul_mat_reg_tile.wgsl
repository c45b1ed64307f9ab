@group(0) @binding(1) var<storage, read_write> src1: array<vec4<f32>>;
@compute @workgroup_size(32)
fn main(
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) num: vec3<u32>,
    @builtin(local_invocation_index) i: u32,
) {
    let tiles = (params.m + 31u) / 32u;
    let row = (wg.y * num.x + wg.x) % tiles * 32u + i;
    let first = (wg.y * num.x + wg.x) / tiles * 32u;
    if (row >= params.m || first >= params.n) { return; }
    let tokens = min(32u, params.n - first);
    let at = params.offset_src0 + row * params.stride_01;
    var sums: array<f32, 32>;
    for (var c = 0u; c < params.k; c += 4u) {
        let w = vec4(load(at, c), load(at, c + 1u), load(at, c + 2u), load(at, c + 3u));
        let x = (params.offset_src1 + first * params.stride_11 + c) / 4u;
        for (var t = 0u; t < tokens; t++) {
            sums[t] += dot(w, src1[x + t * params.stride_11 / 4u]);
        }
    }
    for (var t = 0u; t < tokens; t++) {
        dst[params.offset_dst + (first + t) * params.m + row] = sums[t];
    }
}
