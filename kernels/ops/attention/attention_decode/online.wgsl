// attention_decode/online: one workgroup a query head, softmax kept running; no subgroups needed.
//
//   y[h] = sum_t softmax_t(SCALE * query[h] . K[g][t]) * V[g][t]      g = h / Q_PER_KV
//
// Idea: online softmax (Milakov and Gimelshein, arXiv 1805.02867) over tiles of WG slots. Scores:
// one invocation a slot. Values: one invocation four elements of a slot in PARTS, so the reads of
// V are coalesced. Nothing but the output goes to device memory.
// import: attention/parts/softmax, format/store_four, kv/four, reduce/tree
override HEAD_DIM: u32; // a multiple of 4, at most 4*WG
override WG: u32 = 256u;

@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;

override FOURS: u32 = HEAD_DIM / 4u;
var<workgroup> query: array<vec4<f32>, FOURS>;
var<workgroup> softmax_weights: array<f32, WG>;
var<workgroup> sums: array<vec4<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let head = workgroup.x;
    let fours = HEAD_DIM / 4u;
    let cache = (head / Q_PER_KV) * KV_SIZE * fours;
    let n = min(state[POSITION] + 1u, KV_SIZE);
    for (var i = lid; i < fours; i += WG) { query[i] = q[head * fours + i]; }
    workgroupBarrier();

    let parts = WG / fours;
    let part = lid / fours;
    let four = lid % fours;
    var most = LOWEST;
    var norm = 0.0;
    var sum = vec4<f32>(0.0);
    for (var tile = 0u; tile < n; tile += WG) {
        let t = tile + lid;
        var score = LOWEST;
        if (t < n) {
            var products = vec4<f32>(0.0);
            for (var i = 0u; i < fours; i++) { products += query[i] * k_four(cache + t * fours + i); }
            score = SCALE * (products.x + products.y + products.z + products.w);
        }
        let tile_most = max(most, workgroup_max(lid, score));
        let weight = select(0.0, exp(score - tile_most), t < n);
        softmax_weights[lid] = weight;
        let decay = exp(most - tile_most);
        norm = norm * decay + workgroup_sum(lid, weight);
        sum *= decay;
        most = tile_most;
        if (part < parts) {
            let count = min(WG, n - tile);
            for (var j = part; j < count; j += parts) {
                sum += softmax_weights[j] * v_four(cache + (tile + j) * fours + four);
            }
        }
        workgroupBarrier();
    }

    sums[lid] = sum;
    workgroupBarrier();
    if (lid < fours) {
        var total = vec4<f32>(0.0);
        for (var p = 0u; p < parts; p++) { total += sums[p * fours + lid]; }
        store_four(head * fours + lid, total / norm);
    }
}
