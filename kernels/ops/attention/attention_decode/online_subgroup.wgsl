// attention_decode/online_subgroup: one workgroup a query head, one subgroup a slot.
//
//   y[h] = sum_t softmax_t(SCALE * query[h] . K[g][t]) * V[g][t]      g = h / Q_PER_KV
//
// Idea: every subgroup keeps its own online softmax over the slots it owns, four at a time so
// that four K and four V rows are in flight; reads of K and V are coalesced across its lanes; the
// subgroups meet once, at the end, in workgroup memory.
// import: attention/parts/softmax, format/store_four, kv/four
override HEAD_DIM: u32; // a multiple of 4, at most 256
override WG: u32 = 256u;
override SG_MIN: u32 = 4u; // the adapter's smallest subgroup size
override SUBGROUPS: u32 = 64u; // WG / SG_MIN

// A lane holds HEAD_DIM/4/SG_MIN groups of four elements: 16 for 256 elements on 4 lanes.
const MOST_FOURS: u32 = 16u;

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;

var<workgroup> mosts: array<f32, SUBGROUPS>;
var<workgroup> norms: array<f32, SUBGROUPS>;
override SUM_SLOTS: u32 = SUBGROUPS * HEAD_DIM / 4u;
var<workgroup> sums: array<vec4<f32>, SUM_SLOTS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let head = workgroup.x;
    let fours = HEAD_DIM / 4u;
    let fours_per_lane = (fours + SG_MIN - 1u) / SG_MIN;
    let cache = (head / Q_PER_KV) * KV_SIZE * fours;
    let n = min(state[POSITION] + 1u, KV_SIZE);

    var query: array<vec4<f32>, MOST_FOURS>;
    var sum: array<vec4<f32>, MOST_FOURS>;
    for (var i = 0u; i < fours_per_lane; i++) {
        let f = lane + i * size;
        sum[i] = vec4<f32>(0.0);
        query[i] = vec4<f32>(0.0);
        if (f < fours) { query[i] = SCALE * q[head * fours + f]; }
    }

    var most = LOWEST;
    var norm = 0.0;
    for (var first = subgroup; first < n; first += 4u * subgroups) {
        // Slots past the end repeat the last one with weight zero.
        let t = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * subgroups, vec4<u32>(n - 1u));
        let live = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * subgroups < vec4<u32>(n);
        var scores = vec4<f32>(0.0);
        for (var i = 0u; i < fours_per_lane; i++) {
            let f = lane + i * size;
            if (f < fours) {
                scores += vec4<f32>(
                    dot(query[i], k_four(cache + t.x * fours + f)),
                    dot(query[i], k_four(cache + t.y * fours + f)),
                    dot(query[i], k_four(cache + t.z * fours + f)),
                    dot(query[i], k_four(cache + t.w * fours + f)),
                );
            }
        }
        scores = select(vec4<f32>(LOWEST), subgroupAdd(scores), live);
        let new_most = max(max(most, max(scores.x, scores.y)), max(scores.z, scores.w));
        let decay = exp(most - new_most);
        let p = select(vec4<f32>(0.0), exp(scores - vec4<f32>(new_most)), live);
        norm = norm * decay + (p.x + p.y) + (p.z + p.w);
        most = new_most;
        for (var i = 0u; i < fours_per_lane; i++) {
            let f = lane + i * size;
            if (f < fours) {
                sum[i] = sum[i] * decay
                    + p.x * v_four(cache + t.x * fours + f)
                    + p.y * v_four(cache + t.y * fours + f)
                    + p.z * v_four(cache + t.z * fours + f)
                    + p.w * v_four(cache + t.w * fours + f);
            }
        }
    }

    if (lane == 0u) {
        mosts[subgroup] = most;
        norms[subgroup] = norm;
    }
    for (var i = 0u; i < fours_per_lane; i++) {
        let f = lane + i * size;
        if (f < fours) { sums[subgroup * fours + f] = sum[i]; }
    }
    workgroupBarrier();
    for (var f = lid; f < fours; f += WG) {
        var all_most = LOWEST;
        for (var s = 0u; s < subgroups; s++) { all_most = max(all_most, mosts[s]); }
        var all_norm = 0.0;
        var total = vec4<f32>(0.0);
        for (var s = 0u; s < subgroups; s++) {
            let weight = exp(mosts[s] - all_most);
            all_norm += weight * norms[s];
            total += weight * sums[s * fours + f];
        }
        store_four(head * fours + f, total / all_norm);
    }
}
