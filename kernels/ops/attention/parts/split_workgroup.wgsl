// One workgroup's part of split decode attention without subgroups: all Q_PER_KV query heads of a KV head
// over the tiles of one split. It leaves what split_combine merges. A tile of slots is
// WG / LANES * IN_FLIGHT: for the scores LANES invocations share a row of K and leave their parts of the dot
// product in workgroup memory; for the values every invocation has one chunk of every few rows of V and
// an online softmax (arXiv 1805.02867) of its own over them. `cache_only` or `new_token`
// has the queries, and the new token's key and value.
// import: attention/parts/attended, attention/parts/invocation, attention/parts/softmax
// import: attention/parts/split, kv/chunk
// requires: const APPENDS: bool
// requires: var partials: array<vec4<f32>>
// requires: var tops: array<vec2<f32>>
// requires: fn new_chunk(row: u32, c: u32) -> vec4<u32>
// requires: fn new_slot() -> u32
// requires: fn query_four(part: SplitPart, h: u32, four: u32) -> vec4<f32>
// requires: fn ready(part: SplitPart, at: Invocation, size: u32) -> bool
override SCALE: f32;
override WG: u32 = 128u; // at least the chunks of a head
override LANES: u32 = 8u;
override IN_FLIGHT: u32 = 2u; // rows of K an invocation loads at once

const MOST_IN_FLIGHT: u32 = 8u;
const V_AT_ONCE: u32 = 4u;

override QUERY_SLOTS: u32 = Q_PER_KV * HEAD_DIM / 4u;
override SCORE_SLOTS: u32 = WG / LANES * IN_FLIGHT * Q_PER_KV;
// Parts of dot products; at the end eight elements of V an invocation.
override POOL_SLOTS: u32 = WG * (IN_FLIGHT * Q_PER_KV + 8u);
var<workgroup> split_query: array<vec4<f32>, QUERY_SLOTS>;
var<workgroup> split_scores: array<f32, SCORE_SLOTS>;
var<workgroup> pool: array<f32, POOL_SLOTS>;
var<workgroup> parts_tops: array<vec2<f32>, WG>;

fn head_chunks() -> u32 { return HEAD_DIM / (4u * chunk_fours()); }

fn tile() -> u32 { return WG / LANES * IN_FLIGHT; }

// Splits are dealt whole tiles.
fn thread_groups() -> u32 { return tile(); }

fn split_of(slot: u32, n: u32) -> u32 { return slot / tile() % used_splits(n); }

fn attend_split_tiles(kv_head: u32, split: u32, lid: u32) {
    let n = attended();
    let used = used_splits(n);
    if (split >= used) { return; }
    let own = SplitPart(kv_head, 0u, split);
    if (!ready(own, Invocation(lid, 0u, 0u), 0u)) { return; }
    let fours = HEAD_DIM / 4u;
    let chunks = head_chunks();
    let per_chunk = chunk_fours();
    let cache = kv_head * KV_SIZE * vector_chunks();
    for (var i = lid; i < Q_PER_KV * fours; i += WG) {
        split_query[i] = SCALE * LOG2_E * query_four(own, i / fours, i % fours);
    }
    workgroupBarrier();

    let member = lid % LANES;
    let team = lid / LANES * IN_FLIGHT;
    let parts = WG / chunks;
    let part = lid / chunks;
    let chunk = lid % chunks;
    var most: array<f32, MOST_HEADS>;
    var norm: array<f32, MOST_HEADS>;
    var sum: array<vec4<f32>, 16>; // MOST_HEADS * 2
    for (var h = 0u; h < Q_PER_KV; h++) {
        most[h] = LOWEST;
        norm[h] = 0.0;
        for (var p = 0u; p < per_chunk; p++) { sum[h * per_chunk + p] = vec4<f32>(0.0); }
    }
    var dots: array<f32, MOST_SCORES>;
    var loaded: array<vec4<u32>, MOST_IN_FLIGHT>;
    var values: array<vec4<u32>, V_AT_ONCE>;
    for (var first = split * tile(); first < n; first += used * tile()) {
        for (var i = 0u; i < Q_PER_KV * IN_FLIGHT; i++) { dots[i] = 0.0; }
        for (var c = member; c < chunks; c += LANES) {
            for (var j = 0u; j < IN_FLIGHT; j++) {
                let t = min(first + team + j, n - 1u);
                loaded[j] = k_chunk(cache + t * vector_chunks(), c);
                if (APPENDS && t == new_slot()) { loaded[j] = new_chunk(0u, c); }
            }
            for (var p = 0u; p < per_chunk; p++) {
                for (var h = 0u; h < Q_PER_KV; h++) {
                    let wanted = split_query[h * fours + c * per_chunk + p];
                    for (var j = 0u; j < IN_FLIGHT; j++) {
                        dots[j * Q_PER_KV + h] += dot(wanted, chunk_four(loaded[j], p));
                    }
                }
            }
        }
        for (var i = 0u; i < Q_PER_KV * IN_FLIGHT; i++) {
            pool[(team * Q_PER_KV + i) * LANES + member] = dots[i];
        }
        workgroupBarrier();
        for (var i = lid; i < tile() * Q_PER_KV; i += WG) {
            var score = 0.0;
            for (var m = 0u; m < LANES; m++) { score += pool[i * LANES + m]; }
            split_scores[i] = select(LOWEST, score, first + i / Q_PER_KV < n);
        }
        workgroupBarrier();
        if (part < parts) {
            for (var some = part; some < tile(); some += V_AT_ONCE * parts) {
                for (var m = 0u; m < V_AT_ONCE; m++) {
                    let t = min(first + some + m * parts, n - 1u);
                    values[m] = v_chunk(cache + t * vector_chunks(), chunk);
                    if (APPENDS && t == new_slot()) { values[m] = new_chunk(1u, chunk); }
                }
                for (var h = 0u; h < Q_PER_KV; h++) {
                    var top = most[h];
                    for (var m = 0u; m < V_AT_ONCE; m++) {
                        let s = some + m * parts;
                        if (s < tile()) { top = max(top, split_scores[s * Q_PER_KV + h]); }
                    }
                    let decay = exp2(most[h] - top);
                    most[h] = top;
                    norm[h] *= decay;
                    for (var p = 0u; p < per_chunk; p++) { sum[h * per_chunk + p] *= decay; }
                    for (var m = 0u; m < V_AT_ONCE; m++) {
                        let s = some + m * parts;
                        if (s < tile() && first + s < n) {
                            let weight = exp2(split_scores[s * Q_PER_KV + h] - top);
                            norm[h] += weight;
                            for (var p = 0u; p < per_chunk; p++) {
                                sum[h * per_chunk + p] += weight * chunk_four(values[m], p);
                            }
                        }
                    }
                }
            }
        }
    }

    for (var h = 0u; h < Q_PER_KV; h++) {
        workgroupBarrier();
        if (part < parts) {
            if (chunk == 0u) { parts_tops[part] = vec2<f32>(most[h], norm[h]); }
            for (var p = 0u; p < per_chunk; p++) {
                let at = 4u * (part * fours + chunk * per_chunk + p);
                for (var e = 0u; e < 4u; e++) { pool[at + e] = sum[h * per_chunk + p][e]; }
            }
        }
        workgroupBarrier();
        let slot = (kv_head * splits() + split) * Q_PER_KV + h;
        for (var f = lid; f < fours; f += WG) {
            var top = vec2<f32>(LOWEST, 0.0);
            var total = vec4<f32>(0.0);
            for (var i = 0u; i < parts; i++) { top.x = max(top.x, parts_tops[i].x); }
            for (var i = 0u; i < parts; i++) {
                let weight = exp2(parts_tops[i].x - top.x);
                let at = 4u * (i * fours + f);
                top.y += weight * parts_tops[i].y;
                total +=
                    weight * vec4<f32>(pool[at], pool[at + 1u], pool[at + 2u], pool[at + 3u]);
            }
            partials[slot * fours + f] = total;
            if (f == 0u) { tops[slot] = top; }
        }
    }
}

@compute @workgroup_size(WG)
fn attend(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    attend_split_tiles(workgroup.x / splits(), workgroup.x % splits(), lid);
}
