// One workgroup's share of split decode attention: all GROUP query heads of a KV head over the
// slots of one split. The file that uses it stores what comes out: `store_top(i, top)`, the largest
// score (in units of log2) and the sum of weights, and `store_sum(i, v)`, fours of the weighted sum
// of V; i counts [KV head][split][head of the group].
//
// LANES lanes are a team and hold one slot's row of 16-byte chunks, held() of them each. Team i of
// all teams at work takes slots i, i + teams, ...: whatever n is, none has more than one slot more
// than another.
const LOG2_E: f32 = 1.4426950408889634;
// Limits of what a lane holds, in registers when the loops below are unrolled.
const MOST_HEADS: u32 = 8u;
const MOST_HELD: u32 = 32u; // fours, GROUP * HEAD_DIM / 4 / LANES
const MOST_SCORES: u32 = 64u; // GROUP * in_flight()
const MOST_LOADS: u32 = 32u; // in_flight() * held()

// What the upper half of the subgroups leaves for the lower.
override SUM_SLOTS: u32 = WG / SG_MIN * GROUP * HEAD_DIM / 8u + 1u;
override TOP_SLOTS: u32 = WG / SG_MIN * GROUP;
var<workgroup> shared_sums: array<vec4<f32>, SUM_SLOTS>;
var<workgroup> shared_tops: array<vec2<f32>, TOP_SLOTS>;

fn teams() -> u32 { return WG / LANES; }

fn row_chunks() -> u32 { return HEAD_DIM / (4u * chunk_fours()); }

fn held() -> u32 { return (row_chunks() + LANES - 1u) / LANES; }

// Rows a lane has on their way, of K and of V.
fn in_flight() -> u32 { return min(IN_FLIGHT, min(MOST_LOADS / held(), MOST_SCORES / GROUP)); }

fn team_sum(value: f32) -> f32 {
    var v = value;
    if (LANES > 1u) { v += subgroupShuffleXor(v, 1u); }
    if (LANES > 2u) { v += subgroupShuffleXor(v, 2u); }
    if (LANES > 4u) { v += subgroupShuffleXor(v, 4u); }
    if (LANES > 8u) { v += subgroupShuffleXor(v, 8u); }
    if (LANES > 16u) { v += subgroupShuffleXor(v, 16u); }
    if (LANES > 32u) { v += subgroupShuffleXor(v, 32u); }
    return v;
}

fn attend_share(kv_head: u32, split: u32, n: u32, subgroup: u32, lane: u32, subgroup_size: u32) {
    let size = select(subgroup_size, SG_MIN, SG_MIN == SG_MAX);
    let fours = HEAD_DIM / 4u;
    let member = lane % LANES;
    let team = subgroup * (size / LANES) + lane / LANES;
    let parts = chunk_fours();
    let per_head = held() * parts;

    var sum: array<vec4<f32>, MOST_HELD>;
    var most: array<f32, MOST_HEADS>;
    var norm: array<f32, MOST_HEADS>;
    var query: array<vec4<f32>, MOST_HELD>;
    for (var h = 0u; h < GROUP; h++) {
        most[h] = LOWEST;
        norm[h] = 0.0;
        for (var i = 0u; i < held(); i++) {
            let c = member + i * LANES;
            for (var p = 0u; p < parts; p++) {
                let begin = (kv_head * GROUP + h) * fours + min(c, row_chunks() - 1u) * parts + p;
                let scaled = SCALE * LOG2_E * q[begin];
                query[h * per_head + i * parts + p] =
                    select(vec4<f32>(0.0), scaled, c < row_chunks());
                sum[h * per_head + i * parts + p] = vec4<f32>(0.0);
            }
        }
    }

    let cache = kv_head * CAPACITY * row_chunks();
    let stride = used_splits(n) * teams();
    var k: array<vec4<u32>, MOST_LOADS>;
    var v: array<vec4<u32>, MOST_LOADS>;
    var score: array<f32, MOST_SCORES>;
    for (var round = 0u; round < n; round += in_flight() * stride) {
        let first = round + split * teams() + team;
        // All K and V of the round before the first use. Slots past the end repeat the last one
        // with weight zero, chunks past a row's end its last one.
        for (var j = 0u; j < in_flight(); j++) {
            let row = cache + min(first + j * stride, n - 1u) * row_chunks();
            for (var i = 0u; i < held(); i++) {
                k[j * held() + i] = k_cache[row + min(member + i * LANES, row_chunks() - 1u)];
            }
        }
        for (var j = 0u; j < in_flight(); j++) {
            let row = cache + min(first + j * stride, n - 1u) * row_chunks();
            for (var i = 0u; i < held(); i++) {
                v[j * held() + i] = v_cache[row + min(member + i * LANES, row_chunks() - 1u)];
            }
        }
        for (var j = 0u; j < in_flight(); j++) {
            for (var h = 0u; h < GROUP; h++) { score[j * GROUP + h] = 0.0; }
            for (var i = 0u; i < held(); i++) {
                for (var p = 0u; p < parts; p++) {
                    let four = chunk_four(k[j * held() + i], p);
                    for (var h = 0u; h < GROUP; h++) {
                        score[j * GROUP + h] += dot(query[h * per_head + i * parts + p], four);
                    }
                }
            }
        }
        for (var j = 0u; j < in_flight(); j++) {
            let live = first + j * stride < n;
            for (var h = 0u; h < GROUP; h++) {
                score[j * GROUP + h] = select(LOWEST, team_sum(score[j * GROUP + h]), live);
            }
        }
        for (var h = 0u; h < GROUP; h++) {
            var top = most[h];
            for (var j = 0u; j < in_flight(); j++) { top = max(top, score[j * GROUP + h]); }
            let decay = exp2(most[h] - top);
            most[h] = top;
            var total = norm[h] * decay;
            for (var f = 0u; f < per_head; f++) { sum[h * per_head + f] *= decay; }
            for (var j = 0u; j < in_flight(); j++) {
                let live = first + j * stride < n;
                let weight = select(0.0, exp2(score[j * GROUP + h] - top), live);
                score[j * GROUP + h] = weight;
                total += weight;
            }
            norm[h] = total;
        }
        for (var j = 0u; j < in_flight(); j++) {
            for (var i = 0u; i < held(); i++) {
                for (var p = 0u; p < parts; p++) {
                    let four = chunk_four(v[j * held() + i], p);
                    for (var h = 0u; h < GROUP; h++) {
                        sum[h * per_head + i * parts + p] += score[j * GROUP + h] * four;
                    }
                }
            }
        }
    }

    // The teams of a subgroup.
    for (var h = 0u; h < GROUP; h++) {
        let top = subgroupMax(most[h]);
        let decay = exp2(most[h] - top);
        most[h] = top;
        norm[h] *= decay;
        for (var f = 0u; f < per_head; f++) { sum[h * per_head + f] *= decay; }
    }
    for (var far = LANES; far < SG_MAX; far *= 2u) {
        for (var h = 0u; h < GROUP; h++) {
            norm[h] += select(0.0, subgroupShuffleXor(norm[h], far), far < size);
            for (var f = 0u; f < per_head; f++) {
                let other = subgroupShuffleXor(sum[h * per_head + f], far);
                sum[h * per_head + f] += select(vec4<f32>(0.0), other, far < size);
            }
        }
    }

    // The subgroups, in halves: the upper half leaves its sums, the lower adds them.
    for (var half = WG / SG_MIN / 2u; half > 0u; half /= 2u) {
        if (subgroup >= half && subgroup < 2u * half && lane < LANES) {
            let slot = (subgroup - half) * GROUP;
            for (var h = 0u; h < GROUP; h++) {
                if (lane == 0u) { shared_tops[slot + h] = vec2<f32>(most[h], norm[h]); }
                for (var f = 0u; f < per_head; f++) {
                    let c = member + f / parts * LANES;
                    if (c < row_chunks()) {
                        shared_sums[(slot + h) * fours + c * parts + f % parts] = sum[h * per_head + f];
                    }
                }
            }
        }
        workgroupBarrier();
        if (subgroup < half && subgroup + half < WG / size && lane < LANES) {
            let slot = subgroup * GROUP;
            for (var h = 0u; h < GROUP; h++) {
                let top = max(most[h], shared_tops[slot + h].x);
                let mine = exp2(most[h] - top);
                let other = exp2(shared_tops[slot + h].x - top);
                most[h] = top;
                norm[h] = norm[h] * mine + shared_tops[slot + h].y * other;
                for (var f = 0u; f < per_head; f++) {
                    let c = min(member + f / parts * LANES, row_chunks() - 1u);
                    let added = other * shared_sums[(slot + h) * fours + c * parts + f % parts];
                    sum[h * per_head + f] = sum[h * per_head + f] * mine + added;
                }
            }
        }
        workgroupBarrier();
    }

    if (subgroup == 0u && lane < LANES) {
        let slot = (kv_head * splits() + split) * GROUP;
        for (var h = 0u; h < GROUP; h++) {
            if (lane == 0u) { store_top(slot + h, vec2<f32>(most[h], norm[h])); }
            for (var f = 0u; f < per_head; f++) {
                let c = member + f / parts * LANES;
                if (c < row_chunks()) {
                    store_sum((slot + h) * fours + c * parts + f % parts, sum[h * per_head + f]);
                }
            }
        }
    }
}
