// A subgroup an output's gate and up row, all loads of a round issued before the first use, up to
// five chunks of each row a lane.
// import: grid, matvec/rows/chunk_span
// requires: override N: u32
// requires: type Chunk, NormedChunk, XChunk
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_normed_chunk(c: u32) -> NormedChunk
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>)
override WG: u32 = 256u;
override OUTS_PER_WG: u32 = 8u; // even
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

var<workgroup> gate_up_sums: array<vec2<f32>, OUTS_PER_WG>;

// What the lane's chunk of begin..begin+sg adds to gate, up and squares.
fn dot_gate_up(g: vec4<u32>, u: vec4<u32>, begin: u32, lane: u32) -> vec3<f32> {
    if (begin >= row_chunks()) { return vec3<f32>(0.0); }
    let part = load_normed_chunk(span_chunk(begin, lane));
    let sum = vec3<f32>(dot_chunk(g, part.v), dot_chunk(u, part.v), part.squares);
    return select(vec3<f32>(0.0), sum, begin + lane < row_chunks());
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let deep = spans_a_round(sg, 5u);
    let first = group_index(workgroup, groups) * OUTS_PER_WG;
    for (var o = 0u; o < OUTS_PER_WG; o += subgroups) {
        // Outputs past the end repeat the last one: loads stay inside, results are dropped.
        let i = min(first + o + subgroup, N - 1u);
        let gate = i * row_chunks();
        let up = (N + i) * row_chunks();
        var sum = vec3<f32>(0.0);
        for (var c0 = 0u; c0 < row_chunks(); c0 += deep * sg) {
            // Spans past the round's end hold no chunk.
            let c1 = select(row_chunks(), c0 + sg, deep > 1u);
            let c2 = select(row_chunks(), c0 + 2u * sg, deep > 2u);
            let c3 = select(row_chunks(), c0 + 3u * sg, deep > 3u);
            let c4 = select(row_chunks(), c0 + 4u * sg, deep > 4u);
            let g0 = load_span_chunk(gate, c0, lane);
            let u0 = load_span_chunk(up, c0, lane);
            let g1 = load_span_chunk(gate, c1, lane);
            let u1 = load_span_chunk(up, c1, lane);
            let g2 = load_span_chunk(gate, c2, lane);
            let u2 = load_span_chunk(up, c2, lane);
            let g3 = load_span_chunk(gate, c3, lane);
            let u3 = load_span_chunk(up, c3, lane);
            let g4 = load_span_chunk(gate, c4, lane);
            let u4 = load_span_chunk(up, c4, lane);
            sum += dot_gate_up(g0, u0, c0, lane) + dot_gate_up(g1, u1, c1, lane);
            sum += dot_gate_up(g2, u2, c2, lane) + dot_gate_up(g3, u3, c3, lane);
            sum += dot_gate_up(g4, u4, c4, lane);
        }
        let total = subgroupAdd(sum);
        if (lane == 0u && o + subgroup < OUTS_PER_WG) {
            gate_up_sums[o + subgroup] = total.xy * rms_factor(total.z);
        }
    }
    workgroupBarrier();
    for (var pair = lid; 2u * pair < OUTS_PER_WG; pair += WG) {
        let at = first + 2u * pair;
        if (at < N) {
            let a = gate_up_sums[2u * pair];
            let b = gate_up_sums[2u * pair + 1u];
            store_gated(at, a, b);
        }
    }
}
