// matmul_rmsnorm_fused/last_workgroup: one dispatch; the last workgroup to arrive norms. Dense.
//
//   b = W . x, or (W . x) / rms(W . x) * (WEIGHT_OFFSET + post_weight) with POST_NORM rms
//   stream = stream + b;  with NEXT_NORM rms: y = stream / rms(stream) * (WEIGHT_OFFSET + next_weight)
//   W: (ROWS, K)  x: (K) f32 or f16  stream, weights of the norms: (ROWS)  y: (ROWS) f32 or f16
//   rms(v) = sqrt(mean v^2 + EPS)  WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: all workgroups share the matrix, a few rows each, every lane with all its loads of a round
// in flight. Each counts itself in when its rows are stored; the one that finds all others counted
// knows that every row is there, takes the branch into the stream, and sets the counter to zero for
// the next dispatch. Nobody waits for anybody, so nothing depends on which workgroups are resident.
//
// What it relies on: WGSL's atomics are relaxed, and rows cross workgroups. So rows are stored and
// loaded with atomics, which are coherent over the device, and a storageBarrier on either side of
// the counter keeps them in order (naga makes it an acquire-release barrier of device scope on
// Vulkan; D3D12's and Metal's are barriers of device memory). The pattern is that of CUDA's
// threadFenceReduction sample, with a barrier for __threadfence.
// import: grid, matvec/rows/chunk_span, matvec/rows/dense, norm/residual, reduce/subgroups
override ROWS: u32;
override NEXT_NORM: u32;
override N: u32 = ROWS;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 1u; // 1, 2 or 4: rows that all lanes work on together

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> next_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> branch: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> arrived: array<atomic<u32>>;

override SLOTS: u32 = WG / 4u; // subgroups have at least four lanes
var<workgroup> row_sums: array<vec4<f32>, SLOTS>;
var<workgroup> before: u32;

struct NormLane { lid: u32, lane: u32, subgroup: u32, subgroups: u32 }

fn sum_all(p: NormLane, value: f32) -> f32 {
    return sum_of_subgroups(p.lane, p.subgroup, p.subgroups, value);
}

fn delta_at(i: u32) -> f32 { return bitcast<f32>(atomicLoad(&branch[i])); }

fn stream_at(i: u32) -> f32 { return stream[i]; }

fn set_stream(i: u32, value: f32) { stream[i] = value; }

// A chunk of each of the rows.
struct Chunks { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

fn sum_base(row: u32) -> u32 { return min(row, ROWS - 1u) * row_chunks(); }

fn load_rows(first: u32, begin: u32, lid: u32) -> Chunks {
    var w: Chunks;
    w.a = load_span_chunk(sum_base(first), begin, lid);
    if (ROWS_PER_WG > 1u) { w.b = load_span_chunk(sum_base(first + 1u), begin, lid); }
    if (ROWS_PER_WG > 2u) {
        w.c = load_span_chunk(sum_base(first + 2u), begin, lid);
        w.d = load_span_chunk(sum_base(first + 3u), begin, lid);
    }
    return w;
}

fn contribute(w: Chunks, begin: u32, lid: u32) -> vec4<f32> {
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
        let w0 = load_rows(first, c0, lid);
        let w1 = load_rows(first, c1, lid);
        let w2 = load_rows(first, c2, lid);
        let w3 = load_rows(first, c3, lid);
        sum += contribute(w0, c0, lid) + contribute(w1, c1, lid);
        sum += contribute(w2, c2, lid) + contribute(w3, c3, lid);
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
    if (lid == 0u) { before = atomicAdd(&arrived[0], 1u); }
    // A barrier, after which all invocations agree.
    if (workgroupUniformLoad(&before) + 1u < all) { return; }
    storageBarrier();
    if (lid == 0u) { atomicStore(&arrived[0], 0u); }
    residual_norm(NormLane(lid, lane, subgroup, subgroups), NEXT_NORM == 1u);
}
