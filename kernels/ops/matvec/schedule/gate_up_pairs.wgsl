// A subgroup two neighbouring outputs' gate and up rows, two chunks of each in flight a lane.
// import: grid, matvec/rows/chunk_span
// requires: override N: u32
// requires: type Chunk, NormedChunk, XChunk
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_normed_chunk(c: u32) -> NormedChunk
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>)
override WG: u32 = 256u;
override OUTS_PER_WG: u32 = 16u; // even
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

struct PairSums { rows: vec4<f32>, squares: f32 } // gate and up of one output, then of the other

// What the lane's chunk of begin..begin+sg adds.
fn dot_two_gate_up(
    ga: vec4<u32>, ua: vec4<u32>, gb: vec4<u32>, ub: vec4<u32>, begin: u32, lane: u32,
) -> PairSums {
    if (begin >= row_chunks()) { return PairSums(vec4<f32>(0.0), 0.0); }
    let part = load_normed_chunk(span_chunk(begin, lane));
    let rows = vec4<f32>(
        dot_chunk(ga, part.v), dot_chunk(ua, part.v), dot_chunk(gb, part.v), dot_chunk(ub, part.v),
    );
    let mine = begin + lane < row_chunks();
    return PairSums(select(vec4<f32>(0.0), rows, mine), select(0.0, part.squares, mine));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let first = group_index(workgroup, groups) * OUTS_PER_WG;
    for (var o = 0u; o < OUTS_PER_WG; o += 2u * subgroups) {
        // Outputs past the end repeat the last one: loads stay inside, results are dropped.
        let at = first + o + 2u * subgroup;
        let a = min(at, N - 1u);
        let b = min(at + 1u, N - 1u);
        let gate_a = a * row_chunks();
        let up_a = (N + a) * row_chunks();
        let gate_b = b * row_chunks();
        let up_b = (N + b) * row_chunks();
        var rows = vec4<f32>(0.0);
        var squares = 0.0;
        for (var c0 = 0u; c0 < row_chunks(); c0 += 2u * sg) {
            let c1 = c0 + sg;
            let ga0 = load_span_chunk(gate_a, c0, lane);
            let ua0 = load_span_chunk(up_a, c0, lane);
            let gb0 = load_span_chunk(gate_b, c0, lane);
            let ub0 = load_span_chunk(up_b, c0, lane);
            let ga1 = load_span_chunk(gate_a, c1, lane);
            let ua1 = load_span_chunk(up_a, c1, lane);
            let gb1 = load_span_chunk(gate_b, c1, lane);
            let ub1 = load_span_chunk(up_b, c1, lane);
            let s0 = dot_two_gate_up(ga0, ua0, gb0, ub0, c0, lane);
            let s1 = dot_two_gate_up(ga1, ua1, gb1, ub1, c1, lane);
            rows += s0.rows + s1.rows;
            squares += s0.squares + s1.squares;
        }
        let factor = rms_factor(subgroupAdd(squares));
        let total = subgroupAdd(rows) * factor;
        if (lane == 0u && o + 2u * subgroup < OUTS_PER_WG && at < N) {
            store_gated(at, total.xy, total.zw);
        }
    }
}
