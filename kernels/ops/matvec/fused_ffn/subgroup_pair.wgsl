// fused_ffn/subgroup_pair: two neighbouring outputs a subgroup, four rows; dense weights.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: v is loaded, normed and unpacked once for four rows, two chunks of each in flight a lane,
// and the pair that shares an f16 word needs no workgroup memory. Pays where the cache traffic of
// v and the norm's weights, not the matrix, is the limit; with few outputs it leaves a large GPU
// idle.
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_chunk
// import: matvec/rows/chunk_span, matvec/rows/dense
override N: u32;
override WG: u32 = 256u;
override OUTS_PER_WG: u32 = 16u; // even
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> stream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

struct Sums { rows: vec4<f32>, squares: f32 } // gate and up of one output, then of the other

// What the lane's chunk of begin..begin+sg adds.
fn contribute(
    ga: vec4<u32>, ua: vec4<u32>, gb: vec4<u32>, ub: vec4<u32>, begin: u32, lane: u32,
) -> Sums {
    if (begin >= row_chunks()) { return Sums(vec4<f32>(0.0), 0.0); }
    let part = load_normed_chunk(span_chunk(begin, lane));
    let rows = vec4<f32>(
        dot_chunk(ga, part.v), dot_chunk(ua, part.v), dot_chunk(gb, part.v), dot_chunk(ub, part.v),
    );
    let mine = begin + lane < row_chunks();
    return Sums(select(vec4<f32>(0.0), rows, mine), select(0.0, part.squares, mine));
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
            let s0 = contribute(ga0, ua0, gb0, ub0, c0, lane);
            let s1 = contribute(ga1, ua1, gb1, ub1, c1, lane);
            rows += s0.rows + s1.rows;
            squares += s0.squares + s1.squares;
        }
        let factor = rms_factor(subgroupAdd(squares));
        let total = subgroupAdd(rows) * factor;
        if (lane == 0u && o + 2u * subgroup < OUTS_PER_WG && at < N) {
            let both = at + 1u < N;
            let v = vec2<f32>(activate(total.x), activate(total.z)) * total.yw;
            store_pair(at, select(vec2<f32>(v.x, 0.0), v, both), both);
        }
    }
}
