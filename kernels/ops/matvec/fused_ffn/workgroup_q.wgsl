// fused_ffn/workgroup_q: LANES invocations an output, summed through workgroup memory; quantised.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K, quantised, SoA-repacked
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   y: (N) f32 or f16  act: SiLU (ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: as workgroup, sixteen bytes of quants at a time: 32 weights under one scale, apart from the
// scales (SoA-repacked). The rung for adapters and browsers without subgroup operations.
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_or_plain
// import: matvec/prologue/x_tile, matvec/rows/soa
override N: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // invocations an output, a power of two, at most WG/2

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> stream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

// A lane's slice of gate, up and the squares of an output.
var<workgroup> slots: array<vec3<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    let outputs = WG / LANES;
    let first = group_index(workgroup, groups) * outputs;
    let i = first + lid / LANES;
    // Past the end the last output again; the result is dropped.
    let gate = stream_base(min(i, N - 1u));
    let up = stream_base(N + min(i, N - 1u));
    var sum = vec3<f32>(0.0);
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        stage_x_tile(lid, 0u, tile);
        let end = min(soa_row_chunks(), tile + TILE);
        for (var c = tile + lane; c < end; c += LANES) {
            let v = load_x_tile(c - tile);
            let products = vec2<f32>(
                dot_soa_chunk(load_soa_chunk(gate, c), c, v), dot_soa_chunk(load_soa_chunk(up, c), c, v),
            );
            sum += vec3<f32>(products, chunk_squares(c));
        }
        workgroupBarrier();
    }
    slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { slots[lid] += slots[lid + step]; }
        workgroupBarrier();
    }
    // Two outputs an invocation: two f16 make a word.
    let at = first + 2u * lid;
    if (2u * lid < outputs && at < N) {
        let a = slots[2u * lid * LANES];
        let b = slots[(2u * lid + 1u) * LANES];
        let factor = rms_factor(a.z);
        let gate = vec2<f32>(a.x, b.x) * factor;
        let up = vec2<f32>(a.y, b.y) * factor;
        let both = at + 1u < N;
        let v = vec2<f32>(activate(gate.x), activate(gate.y)) * up;
        store_pair(at, select(vec2<f32>(v.x, 0.0), v, both), both);
    }
}
