// fused_ffn/planes: LANES lanes an output, its gate row and its up row; quantised weights.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K, quantised, SoA-repacked
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   y: (N) f32 or f16  act: SiLU (ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: sixteen aligned bytes of quants a load, 32 neighbours under one scale, coalesced across the
// lanes, scales from their own plane at the same time. The activations of a chunk, their sum and
// their squares serve two rows. Two chunks of each row are in flight
// a lane while x goes to workgroup memory. Results meet in
// workgroup memory, where an invocation finds the two that make a word of f16.
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_or_plain
// import: matvec/prologue/x_tile, matvec/rows/soa
override N: u32;
override WG: u32 = 256u;
override LANES: u32 = 16u; // a power of two from 4 on, at most WG/2
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
override OUTS: u32 = WG / LANES;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> stream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

var<workgroup> sums: array<vec2<f32>, OUTS>;

// Nothing past the end.
fn load(base: u32, c: u32, end: u32) -> SoaChunk {
    if (c < end) { return load_soa_chunk(base, c); }
    return SoaChunk();
}

// What chunk c of an output's gate and up rows adds to gate, up and squares; x is staged from
// chunk `tile` on.
fn gate_up(gate: SoaChunk, up: SoaChunk, c: u32, tile: u32) -> vec3<f32> {
    let v = load_x_tile(c - tile);
    return vec3<f32>(dot_soa_chunk(gate, c, v), dot_soa_chunk(up, c, v), chunk_squares(c));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let first = group_index(workgroup, groups) * OUTS;
    // Without an output of its own a group of lanes repeats the last one and drops the result.
    let i = min(first + slot, N - 1u);
    let gate = stream_base(i);
    let up = stream_base(N + i);
    var sum = vec3<f32>(0.0);
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        let end = min(soa_row_chunks(), tile + TILE);
        let c = tile + lane % lanes;
        var g0 = load(gate, c, end);
        var u0 = load(up, c, end);
        var g1 = load(gate, c + lanes, end);
        var u1 = load(up, c + lanes, end);
        stage_x_tile(lid, 0u, tile);
        for (var c0 = c; c0 < end; c0 += 2u * lanes) {
            let c1 = c0 + lanes;
            sum += gate_up(g0, u0, c0, tile);
            if (c1 < end) { sum += gate_up(g1, u1, c1, tile); }
            if (c1 + lanes < end) {
                g0 = load(gate, c1 + lanes, end);
                u0 = load(up, c1 + lanes, end);
                g1 = load(gate, c1 + 2u * lanes, end);
                u1 = load(up, c1 + 2u * lanes, end);
            }
        }
        workgroupBarrier();
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (slot < OUTS && lane % lanes == 0u) { sums[slot] = sum.xy * rms_factor(sum.z); }
    workgroupBarrier();
    let at = first + 2u * lid;
    if (2u * lid < OUTS && at < N) {
        let a = sums[2u * lid];
        let b = sums[2u * lid + 1u];
        let both = at + 1u < N;
        let v = vec2<f32>(activate(a.x), activate(b.x)) * vec2<f32>(a.y, b.y);
        store_pair(at, select(vec2<f32>(v.x, 0.0), v, both), both);
    }
}
