// fused_ffn/planes: LANES lanes an output, its gate row and its up row; quantised weights.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K, quantised, in planes
//   v = x (NORM none; f32 or f16) or stream / rms(stream) * norm_weight (NORM rms; f32), (K)
//   y: (N) f32 or f16  act: SiLU (ACT 0) or GELU, tanh form (ACT 1); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: sixteen aligned bytes of codes a load, 32 neighbours under one scale, coalesced across the
// lanes, scales from their own plane at the same time. The activations of a chunk, their sum and
// their squares serve two rows. Up to three chunks of each row are in flight a lane. Results meet in
// workgroup memory, where an invocation finds the two that make a word of f16.
// uses: activation, planes, normed_four, store_pair, grid
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

// Nothing past the row's end.
fn load(base: u32, c: u32) -> Chunk {
    if (c < row_chunks()) { return load_chunk(base, c); }
    return Chunk();
}

fn contribute(gate: Chunk, up: Chunk, c: u32) -> vec3<f32> {
    if (c < row_chunks()) { return gate_up(gate, up, c); }
    return vec3<f32>(0.0);
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
    let spans = (row_chunks() + lanes - 1u) / lanes;
    let rounds = (spans + 2u) / 3u;
    let deep = (spans + rounds - 1u) / rounds;
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let first = group_index(workgroup, groups) * OUTS;
    // Without an output of its own a group of lanes repeats the last one and drops the result.
    let i = min(first + slot, N - 1u);
    let gate = row_base(i);
    let up = row_base(N + i);
    var sum = vec3<f32>(0.0);
    for (var round = 0u; round < row_chunks(); round += deep * lanes) {
        // Spans past the round's end hold no chunk.
        let c0 = round + lane % lanes;
        let c1 = select(row_chunks(), c0 + lanes, deep > 1u);
        let c2 = select(row_chunks(), c0 + 2u * lanes, deep > 2u);
        let g0 = load(gate, c0);
        let u0 = load(up, c0);
        let g1 = load(gate, c1);
        let u1 = load(up, c1);
        let g2 = load(gate, c2);
        let u2 = load(up, c2);
        sum += contribute(g0, u0, c0);
        sum += contribute(g1, u1, c1);
        sum += contribute(g2, u2, c2);
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
