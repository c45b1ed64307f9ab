// attention_decode/streaming: one workgroup a query head, nothing of the cache staged.
//
// Idea: workgroup memory holds WG weights and one four of the result an invocation, whatever the
// head's size is: for heads of which no tile fits. Scores: one invocation a slot, its query read
// through the cache, the same for all. Values: neighbouring invocations read neighbouring fours, and
// the invocations of a part keep an online softmax (arXiv 1805.02867) of their own.
// import: attention/parts/softmax, format/store_four, kv/four
override HEAD_DIM: u32; // a multiple of 4
override WG: u32 = 128u;

// Fours an invocation can hold: heads of up to 16 * WG elements.
const MOST_PREFETCHED: u32 = 4u;

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;

var<workgroup> slot_scores: array<f32, WG>;
var<workgroup> part_tops: array<vec2<f32>, WG>;
var<workgroup> part_sums: array<vec4<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let head = workgroup.x;
    let fours = HEAD_DIM / 4u;
    let wide = min(fours, WG); // invocations of a part
    let own_fours = (fours + wide - 1u) / wide;
    let parts = WG / wide;
    let part = lid / wide;
    let cache = (head / Q_PER_KV) * KV_SIZE * fours;
    let n = min(state[POSITION] + 1u, KV_SIZE);

    var most = LOWEST;
    var norm = 0.0;
    var sum: array<vec4<f32>, MOST_PREFETCHED>;
    for (var i = 0u; i < own_fours; i++) { sum[i] = vec4<f32>(0.0); }
    for (var tile = 0u; tile < n; tile += WG) {
        let t = min(tile + lid, n - 1u);
        var products = vec4<f32>(0.0);
        for (var i = 0u; i < fours; i++) {
            products += q[head * fours + i] * k_four(cache + t * fours + i);
        }
        let score = SCALE * LOG2_E * (products.x + products.y + products.z + products.w);
        slot_scores[lid] = select(LOWEST, score, tile + lid < n);
        workgroupBarrier();
        if (part < parts) {
            let count = min(WG, n - tile);
            var top = most;
            for (var s = part; s < count; s += parts) { top = max(top, slot_scores[s]); }
            let decay = exp2(most - top);
            most = top;
            norm *= decay;
            for (var i = 0u; i < own_fours; i++) { sum[i] *= decay; }
            for (var s = part; s < count; s += parts) {
                let weight = exp2(slot_scores[s] - top);
                norm += weight;
                for (var i = 0u; i < own_fours; i++) {
                    let four = min(lid % wide + i * wide, fours - 1u);
                    sum[i] += weight * v_four(cache + (tile + s) * fours + four);
                }
            }
        }
        workgroupBarrier();
    }

    // The parts, one four an invocation at a time.
    for (var i = 0u; i < own_fours; i++) {
        if (part < parts) {
            if (lid % wide == 0u) { part_tops[part] = vec2<f32>(most, norm); }
            part_sums[lid] = sum[i];
        }
        workgroupBarrier();
        let four = lid + i * wide;
        if (lid < wide && four < fours) {
            var top = LOWEST;
            for (var p = 0u; p < parts; p++) { top = max(top, part_tops[p].x); }
            var total = 0.0;
            var all = vec4<f32>(0.0);
            for (var p = 0u; p < parts; p++) {
                let weight = exp2(part_tops[p].x - top);
                total += weight * part_tops[p].y;
                all += weight * part_sums[p * wide + lid];
            }
            store_four(head * fours + four, all / total);
        }
        workgroupBarrier();
    }
}
