// A few rows a workgroup, all of which work on them together; the last workgroup to arrive takes
// the branch into the stream and norms it.
// import: grid, matvec/rows/chunk_span, norm/residual, norm/subgroup_sums
// requires: override NEXT_NORM, ROWS: u32
// requires: type XChunk, Chunk
// requires: var arrived, branch: array<atomic<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_chunk(c: u32) -> XChunk
// requires: fn row_chunks() -> u32
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 1u; // 1, 2 or 4: rows that all lanes work on together

override SLOTS: u32 = WG / 4u; // subgroups have at least four lanes
var<workgroup> row_sums: array<vec4<f32>, SLOTS>;
var<workgroup> arrived_before: u32;

fn delta_at(i: u32) -> f32 { return bitcast<f32>(atomicLoad(&branch[i])); }

// A chunk of each of the rows.
struct SpanChunks { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

fn sum_base(row: u32) -> u32 { return min(row, ROWS - 1u) * row_chunks(); }

fn load_span_rows(first: u32, begin: u32, lid: u32) -> SpanChunks {
    var w: SpanChunks;
    w.a = load_span_chunk(sum_base(first), begin, lid);
    if (ROWS_PER_WG > 1u) { w.b = load_span_chunk(sum_base(first + 1u), begin, lid); }
    if (ROWS_PER_WG > 2u) {
        w.c = load_span_chunk(sum_base(first + 2u), begin, lid);
        w.d = load_span_chunk(sum_base(first + 3u), begin, lid);
    }
    return w;
}

fn dot_span_rows(w: SpanChunks, begin: u32, lid: u32) -> vec4<f32> {
    if (begin >= row_chunks()) { return vec4<f32>(0.0); }
    let v = load_x_chunk(span_chunk(begin, lid));
    var sum = vec4<f32>(dot_chunk(w.a, v), 0.0, 0.0, 0.0);
    if (ROWS_PER_WG > 1u) { sum.y = dot_chunk(w.b, v); }
    if (ROWS_PER_WG > 2u) {
        sum.z = dot_chunk(w.c, v);
        sum.w = dot_chunk(w.d, v);
    }
    return select(vec4<f32>(0.0), sum, begin + lid < row_chunks());
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let group = group_index(workgroup, groups);
    let all = (ROWS + ROWS_PER_WG - 1u) / ROWS_PER_WG;
    if (group >= all) { return; }
    let first = group * ROWS_PER_WG;
    var sum = vec4<f32>(0.0);
    for (var c0 = 0u; c0 < row_chunks(); c0 += 4u * WG) {
        let c1 = c0 + WG;
        let c2 = c1 + WG;
        let c3 = c2 + WG;
        let w0 = load_span_rows(first, c0, lid);
        let w1 = load_span_rows(first, c1, lid);
        let w2 = load_span_rows(first, c2, lid);
        let w3 = load_span_rows(first, c3, lid);
        sum += dot_span_rows(w0, c0, lid) + dot_span_rows(w1, c1, lid);
        sum += dot_span_rows(w2, c2, lid) + dot_span_rows(w3, c3, lid);
    }
    let part = subgroupAdd(sum);
    if (lane == 0u) { row_sums[subgroup] = part; }
    workgroupBarrier();
    if (lid < ROWS_PER_WG && first + lid < ROWS) {
        var total = 0.0;
        for (var i = 0u; i < subgroups; i++) { total += row_sums[i][lid]; }
        atomicStore(&branch[first + lid], bitcast<u32>(total));
    }
    storageBarrier();
    if (lid == 0u) { arrived_before = atomicAdd(&arrived[0], 1u); }
    // A barrier, after which all invocations agree.
    if (workgroupUniformLoad(&arrived_before) + 1u < all) { return; }
    storageBarrier();
    if (lid == 0u) { atomicStore(&arrived[0], 0u); }
    residual_norm(NormLane(lid, lane, subgroup, subgroups), NEXT_NORM == NORM_RMS);
}
