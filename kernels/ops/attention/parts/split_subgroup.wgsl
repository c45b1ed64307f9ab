// One workgroup's part of split decode attention: HEADS query heads of a KV head over the slots of one split.
// The file that imports it stores the results: `store_top(i, top)` takes the largest score (in units of log2)
// and the sum of weights, `store_sum(i, sum, norm)` four elements of the weighted sum of V and the sum of
// weights; i counts [KV head][split][head of the group]. `cache_only` or `new_token` has the queries, and the
// new token's key and value.
//
// LANES lanes are a thread group. They hold the row of one slot, each lane chunks_per_lane() chunks of it.
// Thread group i takes slots i, i + thread_groups(), ...: none has more than one slot more than another. A
// round is in_flight() slots of a thread group. The next round's K is loaded as soon as this round's scores
// are computed, the next V as soon as this one is added up: memory never waits for arithmetic.
//
// A round's scores, index j * HEADS + h, are summed over the thread group by halves: in each step a lane
// hands half of its sums to another lane and keeps the other half. At the end every lane owns outputs_kept()
// scores and is the only one to take their exponentials; the thread group reads the weights from the owners.
// import: attention/parts/attended, attention/parts/invocation, attention/parts/softmax
// import: attention/parts/split, kv/chunk, kv/vector, persistent/await_input
// requires: const APPENDS: bool
// requires: fn new_chunk(row: u32, c: u32) -> vec4<u32>
// requires: fn new_slot() -> u32
// requires: fn query_four(part: SplitPart, h: u32, four: u32) -> vec4<f32>
// requires: fn ready(part: SplitPart, at: Invocation, size: u32) -> bool
// requires: fn store_sum(i: u32, sum: vec4<f32>, norm: f32)
// requires: fn store_top(i: u32, top: vec2<f32>)
override SCALE: f32;
override WG: u32 = 256u;
override LANES: u32 = 8u; // lanes that share a row, at most SG_MIN
override IN_FLIGHT: u32 = 4u; // rows of K and of V a lane loads at once
override SG_MIN: u32 = 8u; // subgroup sizes the adapter may choose
override SG_MAX: u32 = 64u;

// Limits of what a lane holds, in registers when the loops below are unrolled.
const MOST_LANE_FOURS: u32 = 32u; // fours, HEADS * HEAD_DIM / 4 / LANES
const MOST_LOADS: u32 = 32u; // in_flight() * chunks_per_lane()

// Results that subgroups exchange, of as many heads at a time as SUM_ROOM bytes hold.
override SUM_ROOM: u32 = 16384u;
override SUM_HEADS: u32 = clamp(SUM_ROOM / (WG / SG_MIN * (4u * HEAD_DIM + 8u)), 1u, HEADS);
override SUM_SLOTS: u32 = WG / SG_MIN * SUM_HEADS * HEAD_DIM / 4u;
override TOP_SLOTS: u32 = WG / SG_MIN * SUM_HEADS;
var<workgroup> shared_sums: array<vec4<f32>, SUM_SLOTS>;
var<workgroup> shared_tops: array<vec2<f32>, TOP_SLOTS>;

fn thread_groups() -> u32 { return WG / LANES; }

fn head_chunks() -> u32 { return HEAD_DIM / (4u * chunk_fours()); }

fn chunks_per_lane() -> u32 { return (head_chunks() + LANES - 1u) / LANES; }

// Rows a lane has on their way, of K and of V: a power of two.
fn in_flight() -> u32 {
    return 1u << firstLeadingBit(min(IN_FLIGHT, min(MOST_LOADS / chunks_per_lane(), MOST_SCORES / HEADS)));
}

fn score_registers() -> u32 { return in_flight() * HEADS; }

// Steps that halve the scores: until the thread group has no further lanes, or an odd number is left.
fn halvings() -> u32 { return min(countTrailingZeros(LANES), countTrailingZeros(score_registers())); }

// The first of these steps divide the slots among lanes, so many; the others divide the heads.
fn slot_halvings() -> u32 { return min(halvings(), countTrailingZeros(in_flight())); }

// How many scores a lane owns, and of how many heads and slots they are.
fn outputs_kept() -> u32 { return score_registers() >> halvings(); }
fn heads_kept() -> u32 { return min(outputs_kept(), HEADS); }
fn slots_kept() -> u32 { return outputs_kept() / heads_kept(); }

// The part of the scores that lane `member` owns. Bit i of the lane chose a half in step i, and the first
// step had the largest halves: so the part is the reversed bits.
fn owned_part(member: u32) -> u32 {
    if (halvings() == 0u) { return 0u; }
    return reverseBits(member & ((1u << halvings()) - 1u)) >> (32u - halvings());
}

// Step `step` of the sum over a thread group.
fn fold(score: ptr<function, array<f32, MOST_SCORES>>, step: u32, member: u32) {
    let far = 1u << step;
    if (step < halvings()) {
        let half = score_registers() >> (step + 1u);
        let upper = (member & far) != 0u;
        for (var i = 0u; i < half; i++) {
            let low = (*score)[i];
            let high = (*score)[half + i];
            (*score)[i] = select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), far);
        }
    } else {
        for (var i = 0u; i < outputs_kept(); i++) { (*score)[i] += subgroupShuffleXor((*score)[i], far); }
    }
}

fn fold_all(score: ptr<function, array<f32, MOST_SCORES>>, member: u32) {
    if (LANES > 1u) { fold(score, 0u, member); }
    if (LANES > 2u) { fold(score, 1u, member); }
    if (LANES > 4u) { fold(score, 2u, member); }
    if (LANES > 8u) { fold(score, 3u, member); }
    if (LANES > 16u) { fold(score, 4u, member); }
    if (LANES > 32u) { fold(score, 5u, member); }
}

// The largest over the lanes that own other slots of the same heads.
fn slots_max(value: f32) -> f32 {
    var v = value;
    if (slot_halvings() > 0u) { v = max(v, subgroupShuffleXor(v, 1u)); }
    if (slot_halvings() > 1u) { v = max(v, subgroupShuffleXor(v, 2u)); }
    if (slot_halvings() > 2u) { v = max(v, subgroupShuffleXor(v, 4u)); }
    if (slot_halvings() > 3u) { v = max(v, subgroupShuffleXor(v, 8u)); }
    return v;
}

fn slots_sum(value: f32) -> f32 {
    var v = value;
    if (slot_halvings() > 0u) { v += subgroupShuffleXor(v, 1u); }
    if (slot_halvings() > 1u) { v += subgroupShuffleXor(v, 2u); }
    if (slot_halvings() > 2u) { v += subgroupShuffleXor(v, 4u); }
    if (slot_halvings() > 3u) { v += subgroupShuffleXor(v, 8u); }
    return v;
}

// The lane of the subgroup that owns score i of the thread group that begins at lane `group_lane`.
fn owner(i: u32, group_lane: u32) -> u32 {
    if (halvings() == 0u) { return group_lane; }
    return group_lane + (reverseBits(i / outputs_kept()) >> (32u - halvings()));
}

struct CacheRows { cache: u32, member: u32, first: u32, stride: u32, last: u32 }

// A lane's j-th slot; past the last slot, the last one again.
fn slot_at(r: CacheRows, j: u32) -> u32 { return min(r.first + j * r.stride, r.last); }

// A lane's i-th chunk of a row. Two neighbouring chunks of q8_0 are one element of the cache: a lane that has
// two chunks takes such two.
fn lane_chunk(member: u32, i: u32) -> u32 {
    if (KV_FORMAT == KV_Q8_0 && chunks_per_lane() == 2u) { return 2u * member + i; }
    return member + i * LANES;
}

// The same; past the row's end, its last chunk again.
fn cache_chunk(r: CacheRows, i: u32) -> u32 { return min(lane_chunk(r.member, i), head_chunks() - 1u); }

fn vector_at(r: CacheRows, j: u32) -> u32 { return r.cache + slot_at(r, j) * vector_chunks(); }

// Replaces what was loaded from the new token's slot by its key (row 0) or value (1): the cache does not have
// them yet.
fn insert_new_token(chunks: ptr<function, array<vec4<u32>, MOST_LOADS>>, r: CacheRows, row: u32) {
    if (!APPENDS) { return; }
    for (var j = 0u; j < in_flight(); j++) {
        if (slot_at(r, j) == new_slot()) {
            for (var i = 0u; i < chunks_per_lane(); i++) {
                (*chunks)[j * chunks_per_lane() + i] = new_chunk(row, cache_chunk(r, i));
            }
        }
    }
}

// Clears what was loaded for slots past the end: it may be NaN, which a weight of zero would not remove.
// Loads before n was known read whatever lay there. Later ones read the last slot again, which may be the
// new token's, and not stored yet.
fn clear_past_end(v: ptr<function, array<vec4<u32>, MOST_LOADS>>, r: CacheRows, n: u32) {
    for (var j = 0u; j < in_flight(); j++) {
        if (r.first + j * r.stride >= n) {
            for (var i = 0u; i < chunks_per_lane(); i++) { (*v)[j * chunks_per_lane() + i] = vec4<u32>(0u); }
        }
    }
}

// The split whose workgroup has slot `slot`.
fn split_of(slot: u32, n: u32) -> u32 { return slot % (splits() * thread_groups()) / thread_groups(); }

fn fetch_k(k: ptr<function, array<vec4<u32>, MOST_LOADS>>, r: CacheRows) {
    for (var j = 0u; j < in_flight(); j++) {
        for (var i = 0u; i < chunks_per_lane(); i++) {
            (*k)[j * chunks_per_lane() + i] = k_chunk(vector_at(r, j), cache_chunk(r, i));
        }
    }
}

fn fetch_v(v: ptr<function, array<vec4<u32>, MOST_LOADS>>, r: CacheRows) {
    for (var j = 0u; j < in_flight(); j++) {
        for (var i = 0u; i < chunks_per_lane(); i++) {
            (*v)[j * chunks_per_lane() + i] = v_chunk(vector_at(r, j), cache_chunk(r, i));
        }
    }
}

// Attends to one split's slots. K, V and the queries are in registers once all loops are unrolled. Nothing
// returns early: where code follows, such as the next stage of a persistent kernel, compilers would then keep the arrays in
// memory.
fn attend_slots(
    part: SplitPart, subgroup: u32, lane: u32, size: u32, n: u32, all: CacheRows,
    k: ptr<function, array<vec4<u32>, MOST_LOADS>>,
    v: ptr<function, array<vec4<u32>, MOST_LOADS>>,
    query: ptr<function, array<vec4<f32>, MOST_LANE_FOURS>>,
) {
    let fours = HEAD_DIM / 4u;
    let member = lane % LANES;
    let group_lane = lane - member;
    let parts = chunk_fours();
    let per_head = chunks_per_lane() * parts;
    // The same in every invocation, which a browser's compiler does not see of `all`.
    let stride = splits() * thread_groups();
    var rows = all;
    var sum: array<vec4<f32>, MOST_LANE_FOURS>;
    for (var i = 0u; i < HEADS * per_head; i++) { sum[i] = vec4<f32>(0.0); }

    // Of the heads whose scores this lane owns.
    var own_most: array<f32, MOST_HEADS>;
    var own_norm: array<f32, MOST_HEADS>;
    var decay: array<f32, MOST_HEADS>;
    var weight: array<f32, MOST_HEADS>;
    for (var h = 0u; h < heads_kept(); h++) { own_most[h] = LOWEST; }
    let own = owned_part(member) * outputs_kept();
    var score: array<f32, MOST_SCORES>;
    for (var round = 0u; round < n; round += in_flight() * stride) {
        let first = rows.first;
        let here = rows;
        insert_new_token(k, here, 0u);
        rows.first += in_flight() * stride;
        let more = round + in_flight() * stride < n;
        for (var j = 0u; j < in_flight(); j++) {
            for (var h = 0u; h < HEADS; h++) { score[j * HEADS + h] = 0.0; }
            for (var i = 0u; i < chunks_per_lane(); i++) {
                for (var p = 0u; p < parts; p++) {
                    var four = chunk_four((*k)[j * chunks_per_lane() + i], p);
                    // What a lane without a chunk loaded again may be infinite, and 0 times that NaN.
                    if (chunks_per_lane() * LANES > head_chunks()) {
                        four = select(vec4<f32>(0.0), four, lane_chunk(member, i) < head_chunks());
                    }
                    for (var h = 0u; h < HEADS; h++) {
                        score[j * HEADS + h] += dot((*query)[h * per_head + i * parts + p], four);
                    }
                }
            }
        }
        if (more) { fetch_k(k, rows); }
        fold_all(&score, member);
        // Slots past the end were the last one again, or what lay there before n was known.
        for (var i = 0u; i < outputs_kept(); i++) {
            let live = first + (own + i) / HEADS * stride < n;
            score[i] = select(LOWEST, score[i], live);
        }
        for (var h = 0u; h < heads_kept(); h++) {
            var top = own_most[h];
            for (var j = 0u; j < slots_kept(); j++) { top = max(top, score[j * HEADS + h]); }
            top = slots_max(top);
            decay[h] = exp2(own_most[h] - top);
            own_most[h] = top;
            var total = own_norm[h] * decay[h];
            for (var j = 0u; j < slots_kept(); j++) {
                let i = j * HEADS + h;
                let live = first + (own + i) / HEADS * stride < n;
                score[i] = select(0.0, exp2(score[i] - top), live);
                total += score[i];
            }
            own_norm[h] = total;
        }
        for (var h = 0u; h < HEADS; h++) {
            let shrink = subgroupShuffle(decay[h % outputs_kept()], owner(h, group_lane));
            for (var f = 0u; f < per_head; f++) { sum[h * per_head + f] *= shrink; }
        }
        insert_new_token(v, here, 1u);
        if (APPENDS && (round == 0u || !more)) { clear_past_end(v, here, n); }
        for (var j = 0u; j < in_flight(); j++) {
            for (var h = 0u; h < HEADS; h++) {
                let at = j * HEADS + h;
                weight[h] = subgroupShuffle(score[at % outputs_kept()], owner(at, group_lane));
            }
            for (var f = 0u; f < per_head; f++) {
                let four = chunk_four((*v)[j * chunks_per_lane() + f / parts], f % parts);
                for (var h = 0u; h < HEADS; h++) { sum[h * per_head + f] += weight[h] * four; }
            }
        }
        if (more) { fetch_v(v, rows); }
    }

    var most: array<f32, MOST_HEADS>;
    var norm: array<f32, MOST_HEADS>;
    for (var h = 0u; h < heads_kept(); h++) { own_norm[h] = slots_sum(own_norm[h]); }
    for (var h = 0u; h < HEADS; h++) {
        most[h] = subgroupShuffle(own_most[h % outputs_kept()], owner(h, group_lane));
        norm[h] = subgroupShuffle(own_norm[h % outputs_kept()], owner(h, group_lane));
    }

    // The thread groups of a subgroup.
    for (var h = 0u; h < HEADS; h++) {
        let top = subgroupMax(most[h]);
        let decay = exp2(most[h] - top);
        most[h] = top;
        norm[h] *= decay;
        for (var f = 0u; f < per_head; f++) { sum[h * per_head + f] *= decay; }
    }
    for (var far = LANES; far < SG_MAX; far *= 2u) {
        for (var h = 0u; h < HEADS; h++) {
            norm[h] += select(0.0, subgroupShuffleXor(norm[h], far), far < size);
            for (var f = 0u; f < per_head; f++) {
                let other = subgroupShuffleXor(sum[h * per_head + f], far);
                sum[h * per_head + f] += select(vec4<f32>(0.0), other, far < size);
            }
        }
    }

    // The subgroups: each stores its sums of some heads, then an invocation adds up four elements of one.
    let subgroups = WG / size;
    let slot = (part.kv_head * splits() + part.split) * Q_PER_KV + part.first;
    for (var begin = 0u; begin < HEADS; begin += SUM_HEADS) {
        if (begin > 0u) { workgroupBarrier(); }
        if (lane < LANES) {
            for (var h = 0u; h < HEADS; h++) {
                if (h >= begin && h < begin + SUM_HEADS) {
                    let own = subgroup * SUM_HEADS + h - begin;
                    if (lane == 0u) { shared_tops[own] = vec2<f32>(most[h], norm[h]); }
                    for (var f = 0u; f < per_head; f++) {
                        let c = lane_chunk(member, f / parts);
                        if (c < head_chunks()) { shared_sums[own * fours + c * parts + f % parts] = sum[h * per_head + f]; }
                    }
                }
            }
        }
        workgroupBarrier();
        let here = min(SUM_HEADS, HEADS - begin);
        for (var i = subgroup * size + lane; i < here * fours; i += WG) {
            let h = i / fours;
            var top = LOWEST;
            for (var s = 0u; s < subgroups; s++) { top = max(top, shared_tops[s * SUM_HEADS + h].x); }
            var total = vec4<f32>(0.0);
            var weights = 0.0;
            for (var s = 0u; s < subgroups; s++) {
                let one = shared_tops[s * SUM_HEADS + h];
                let factor = exp2(one.x - top);
                weights += factor * one.y;
                total += factor * shared_sums[(s * SUM_HEADS + h) * fours + i % fours];
            }
            let at = slot + begin + h;
            if (i % fours == 0u) { store_top(at, vec2<f32>(top, weights)); }
            store_sum(at * fours + i % fours, total, weights);
        }
    }
}

// One workgroup's share. Returns whether the split had slots.
fn attend_share(part: SplitPart, subgroup: u32, lane: u32, subgroup_size: u32) -> bool {
    let size = select(subgroup_size, SG_MIN, SG_MIN == SG_MAX);
    let member = lane % LANES;
    let team = subgroup * (size / LANES) + lane / LANES;
    let parts = chunk_fours();
    let per_head = chunks_per_lane() * parts;

    // The first keys are loaded while n is: a thread group's first slot does not depend on n.
    let stride = splits() * thread_groups();
    let begin = part.split * thread_groups() + team;
    var rows = CacheRows(part.kv_head * KV_SIZE * vector_chunks(), member, begin, stride, KV_SIZE - 1u);
    var k: array<vec4<u32>, MOST_LOADS>;
    var v: array<vec4<u32>, MOST_LOADS>;
    // The cache before this step: what lies in the new token's slot is not used. V too, since there is time
    // for it: n and the rotations are two more loads, one after the other.
    if (APPENDS) {
        fetch_k(&k, rows);
        fetch_v(&v, rows);
    }
    await_input();
    // The operation before may have stored the new token. A second stream of loads at once would cost more
    // than it saves.
    if (!APPENDS) { fetch_k(&k, rows); }
    var worked = false;
    if (ready(part, Invocation(subgroup * size + lane, subgroup, lane), size)) {
        var query: array<vec4<f32>, MOST_LANE_FOURS>;
        for (var h = 0u; h < HEADS; h++) {
            for (var i = 0u; i < chunks_per_lane(); i++) {
                let c = lane_chunk(member, i);
                for (var p = 0u; p < parts; p++) {
                    let four = min(c, head_chunks() - 1u) * parts + p;
                    let scaled = SCALE * LOG2_E * query_four(part, h, four);
                    query[h * per_head + i * parts + p] =
                        select(vec4<f32>(0.0), scaled, c < head_chunks());
                }
            }
        }
        let n = attended();
        worked = part.split < used_splits(n);
        if (worked) {
            rows.last = n - 1u;
            if (!APPENDS) { fetch_v(&v, rows); }
            attend_slots(part, subgroup, lane, size, n, rows, &k, &v, &query);
        }
    }
    return worked;
}
