// LANES lanes an output's gate and up row, SoA rows; two chunks of each are in flight while x goes
// to workgroup memory.
// import: grid, matvec/prologue/x_tile, matvec/rows/soa
// requires: override N: u32
// requires: fn chunk_squares(c: u32) -> f32
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>)
override WG: u32 = 256u;
override LANES: u32 = 16u; // a power of two from 4 on, at most WG/2
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
override OUTS: u32 = WG / LANES;

var<workgroup> soa_gate_up_sums: array<vec2<f32>, OUTS>;

// Nothing past the end.
fn load_before(base: u32, c: u32, end: u32) -> SoaChunk {
    if (c < end) { return load_soa_chunk(base, c); }
    return SoaChunk();
}

// What chunk c of an output's gate and up rows adds to gate, up and squares; x is staged from
// chunk `tile` on.
fn dot_soa_gate_up(gate: SoaChunk, up: SoaChunk, c: u32, tile: u32) -> vec3<f32> {
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
        var g0 = load_before(gate, c, end);
        var u0 = load_before(up, c, end);
        var g1 = load_before(gate, c + lanes, end);
        var u1 = load_before(up, c + lanes, end);
        stage_x_tile(lid, 0u, tile);
        for (var c0 = c; c0 < end; c0 += 2u * lanes) {
            let c1 = c0 + lanes;
            sum += dot_soa_gate_up(g0, u0, c0, tile);
            if (c1 < end) { sum += dot_soa_gate_up(g1, u1, c1, tile); }
            if (c1 + lanes < end) {
                g0 = load_before(gate, c1 + lanes, end);
                u0 = load_before(up, c1 + lanes, end);
                g1 = load_before(gate, c1 + 2u * lanes, end);
                u1 = load_before(up, c1 + 2u * lanes, end);
            }
        }
        workgroupBarrier();
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (slot < OUTS && lane % lanes == 0u) { soa_gate_up_sums[slot] = sum.xy * rms_factor(sum.z); }
    workgroupBarrier();
    let at = first + 2u * lid;
    if (2u * lid < OUTS && at < N) {
        let a = soa_gate_up_sums[2u * lid];
        let b = soa_gate_up_sums[2u * lid + 1u];
        store_gated(at, a, b);
    }
}
