// sample/nucleus: with top-p alone, whoever wins among all tokens mostly stays, and that is soon known.
//
//   token = the draw of lathe_reference::sample without top-k: the penalty, top-p of the weights
//   2^(-(max - l) log2(e) / T), of those that stay the largest l + T ln 2 g; then the step ends (see
//   choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state
//   keys: (N), where there is a penalty
//   winners: (MOST_BLOCKS + PICKS), every block's largest sum as a key, its token, that one's key, the second
//   largest sum; from MOST_BLOCKS on those of PICKS groups of blocks
//   maxima: (MOST_BLOCKS + 1), every block's largest key; at MOST_BLOCKS the largest of all
//   bins: (SUMS, 3), digits of the weight ahead of each pick, and of all
//
// Idea: the largest sum of logit and noise among all tokens is the draw if its token stays, and it stays as
// often as top-p says or oftener. Whether it does needs no order of the logits: the weight of all tokens
// ahead of it, and of all. So the whole GPU takes every block's best, then weighs what is ahead of PICKS of
// those, and the last workgroup takes the first that stays. Where a group whose best did not stay has a
// second token that beats the one that does, and where no pick stays, the last workgroup looks at the tokens
// again, and weighs what it finds by itself: slower, and exact. Integers add in any order, so every device
// draws the same token. Three dependent dispatches.
//
// Weights passed through the caches since this code last ran, so it comes from memory and its length is its
// time: `weigh` has a logit a round, for vectors of four would be unrolled, and sums of logit and noise are
// compared as keys.
// import: grid, math/u64, sample/parts/lanes, sample/parts/sampling, sample/parts/vectors, sort/key
// import: step/choose
override WG: u32 = 256u; // a power of two, ENTRANTS at least
override BLOCKS: u32 = 128u; // workgroups that share the logits: a power of two, PICKS to MOST_BLOCKS

@group(0) @binding(3) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> winners: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> maxima: array<u32>;

const MOST_BLOCKS: u32 = 256u;
const ENTRANTS: u32 = 32u; // of blocks, at most
const PICKS: u32 = 8u;
const SUMS: u32 = PICKS + 1u; // ahead of each pick, and of all tokens
const DIGIT: u32 = 20u; // bits of a digit of a sum: 4096 workgroups add up in a word

// A winner: its sum of logit and noise as a key, its token, the key of its logit, and the largest sum of the
// others that it beat.
const NOBODY_YET = vec4<u32>(0u, NOBODY.index, 0u, 0u);
const LEAST_SUM: u32 = 0x00800000u; // NOBODY's value as a key: what is below does not win

var<workgroup> block_best: array<vec4<u32>, MOST_BLOCKS>;
var<workgroup> ranks: array<atomic<u32>, ENTRANTS>;
var<workgroup> picks: array<vec4<u32>, PICKS>;
var<workgroup> digits: array<atomic<u32>, 3u * SUMS>;
var<workgroup> sums: array<vec2<u32>, SUMS>;
var<workgroup> top: atomic<u32>;
var<workgroup> listed: atomic<u32>;
var<workgroup> blocks: array<u32, MOST_BLOCKS>;
var<workgroup> agreed: u32;

// Of equal sums the lower token wins.
fn beats(a: vec4<u32>, b: vec4<u32>) -> bool { return a.x > b.x || (a.x == b.x && a.y < b.y); }

fn better_winner(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    let a_wins = beats(a, b);
    return vec4<u32>(select(b, a, a_wins).xyz, max(max(a.w, b.w), select(a.x, b.x, a_wins)));
}

// A token against the best so far.
fn met(best: vec4<u32>, key: u32, word: u32, token: u32) -> vec4<u32> {
    let sum = sort_key(noisy(key, word));
    if (key == 0u || sum < LEAST_SUM) { return best; }
    return better_winner(best, vec4<u32>(sum, token, key, 0u));
}

// The best of a subgroup's.
fn best_of_subgroup(own: vec4<u32>) -> vec4<u32> {
    let sum = subgroupMax(own.x);
    let token = subgroupMin(select(NOBODY.index, own.y, own.x == sum));
    let wins = own.x == sum && own.y == token;
    let key = subgroupMax(select(0u, own.z, wins));
    return vec4<u32>(sum, token, key, subgroupMax(select(own.x, own.w, wins)));
}

// The best of a workgroup's, in `block_best[0]`.
fn gather_best(lid: u32, lane: u32, subgroup: u32, subgroups: u32, own: vec4<u32>) {
    // Ahead of what subgroups do together: behind it they run side by side again.
    workgroupBarrier();
    let best = best_of_subgroup(own);
    if (lane == 0u) { block_best[subgroup] = best; }
    workgroupBarrier();
    if (lid == 0u) {
        var all = block_best[0];
        for (var other = 1u; other < subgroups; other++) { all = better_winner(all, block_best[other]); }
        block_best[0] = all;
    }
}

// Whether the token of a key is ahead of a winner, largest logits first and of equal ones the lower index.
fn is_ahead(key: u32, token: u32, winner: vec4<u32>) -> bool {
    return key > winner.z || (key == winner.z && token < winner.y);
}

// The key of a token, and those of vector v, once `race` has run.
fn key_again(token: u32) -> u32 {
    if (REPEAT_PENALTY == 1.0) { return key_of(logits[token / 4u][token % 4u], false); }
    return keys[token / 4u][token % 4u];
}
fn keys_again(v: u32) -> vec4<u32> {
    if (REPEAT_PENALTY == 1.0) { return keys_of(v, 0u); }
    return keys[v];
}

// One value for all invocations, that of the first.
fn agree(lid: u32, value: u32) -> u32 {
    workgroupBarrier();
    if (lid == 0u) { agreed = value; }
    return workgroupUniformLoad(&agreed);
}

@compute @workgroup_size(WG)
fn race(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    if (lid == 0u) { atomicStore(&top, 0u); }
    if (block == 0u && lid < 3u * SUMS) { atomicStore(&bins[lid], 0u); }
    var best = NOBODY_YET;
    var most = 0u;
    for (var first = block * WG; first < vectors(); first += BLOCKS * WG) {
        let seen = seen_by_lane(lid, first);
        let v = first + lid;
        if (v < vectors()) {
            let four = keys_of(v, seen);
            let words = random_words(v);
            if (REPEAT_PENALTY != 1.0) { keys[v] = four; }
            for (var i = 0u; i < 4u; i++) {
                best = met(best, four[i], words[i], 4u * v + i);
                most = max(most, four[i]);
            }
        }
    }
    workgroupBarrier();
    let subgroup_most = subgroupMax(most);
    if (lane == 0u) { atomicMax(&top, subgroup_most); }
    gather_best(lid, lane, subgroup, subgroups, best);
    if (lid == 0u) {
        winners[block] = block_best[0];
        maxima[block] = atomicLoad(&top);
    }
}

// The PICKS best of ENTRANTS groups of blocks, in order; `top` becomes the largest key.
fn pick(lid: u32) {
    if (lid == 0u) { atomicStore(&top, 0u); }
    if (lid < PICKS) { picks[lid] = NOBODY_YET; }
    if (lid < ENTRANTS) { atomicStore(&ranks[lid], 0u); }
    workgroupBarrier();
    for (var b = lid; b < BLOCKS; b += WG) {
        block_best[b] = winners[b];
        atomicMax(&top, maxima[b]);
    }
    for (var step = BLOCKS / 2u; step >= ENTRANTS; step /= 2u) {
        workgroupBarrier();
        for (var b = lid; b < step; b += WG) {
            block_best[b] = better_winner(block_best[b], block_best[b + step]);
        }
    }
    workgroupBarrier();
    // Which are beaten by fewer than PICKS: every invocation compares a part.
    let groups = min(BLOCKS, ENTRANTS);
    let mine = lid % groups;
    for (var other = lid / groups; other < groups; other += max(WG / groups, 1u)) {
        if (beats(block_best[other], block_best[mine])) { atomicAdd(&ranks[mine], 1u); }
    }
    workgroupBarrier();
    if (lid < groups) {
        let rank = atomicLoad(&ranks[lid]);
        if (rank < PICKS && block_best[lid].x > 0u) { picks[rank] = block_best[lid]; }
    }
    workgroupBarrier();
}

// Adds to a sum of this workgroup. Digits do not carry, so nobody waits for what an addition returns.
fn add_to(s: u32, weight: vec2<u32>) {
    for (var d = 0u; d < 3u; d++) { atomicAdd(&digits[3u * s + d], digit(weight, d)); }
}
fn digit(weight: vec2<u32>, d: u32) -> u32 {
    let mask = (1u << DIGIT) - 1u;
    if (d == 0u) { return weight.x & mask; }
    if (d == 1u) { return ((weight.x >> DIGIT) | (weight.y << (32u - DIGIT))) & mask; }
    return weight.y >> (2u * DIGIT - 32u);
}
fn sum_of(low: u32, middle: u32, high: u32) -> vec2<u32> {
    let lower = add64(vec2<u32>(middle << DIGIT, middle >> (32u - DIGIT)), vec2<u32>(low, 0u));
    return add64(lower, vec2<u32>(0u, high << (2u * DIGIT - 32u)));
}
fn own_sum(s: u32) -> vec2<u32> {
    let at = 3u * s;
    return sum_of(atomicLoad(&digits[at]), atomicLoad(&digits[at + 1u]), atomicLoad(&digits[at + 2u]));
}

@compute @workgroup_size(WG)
fn weigh(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    if (lid < 3u * SUMS) { atomicStore(&digits[lid], 0u); }
    pick(lid);
    let most = atomicLoad(&top);
    if (block == 0u && lid < PICKS) { winners[MOST_BLOCKS + lid] = picks[lid]; }
    if (block == 0u && lid == 0u) { maxima[MOST_BLOCKS] = most; }
    var own: array<vec2<u32>, SUMS>;
    for (var token = block * WG + lid; token < N; token += BLOCKS * WG) {
        let key = key_again(token);
        let weight = weight_of(key, most);
        own[PICKS] = add64(own[PICKS], weight);
        for (var p = 0u; p < PICKS; p++) {
            if (is_ahead(key, token, picks[p])) { own[p] = add64(own[p], weight); }
        }
    }
    for (var s = 0u; s < SUMS; s++) { add_to(s, own[s]); }
    workgroupBarrier();
    if (lid < 3u * SUMS) {
        // Carries, so that digits are digits again.
        atomicAdd(&bins[lid], digit(own_sum(lid / 3u), lid % 3u));
    }
}

// The weight of all tokens ahead of a winner, by this workgroup alone.
fn weight_ahead(lid: u32, winner: vec4<u32>, most: u32) -> vec2<u32> {
    workgroupBarrier();
    if (lid < 3u) { atomicStore(&digits[lid], 0u); }
    workgroupBarrier();
    var sum = vec2<u32>(0u);
    for (var first = lid; first < vectors(); first += 4u * WG) {
        // Loads are far apart: four at a time.
        var four: array<vec4<u32>, 4>;
        for (var e = 0u; e < 4u; e++) { four[e] = keys_again(min(first + e * WG, vectors() - 1u)); }
        for (var e = 0u; e < 4u; e++) {
            let v = first + e * WG;
            for (var i = 0u; i < 4u; i++) {
                let counts = v < vectors() && four[e][i] > 0u && is_ahead(four[e][i], 4u * v + i, winner);
                if (counts) { sum = add64(sum, weight_of(four[e][i], most)); }
            }
        }
    }
    add_to(0u, sum);
    workgroupBarrier();
    return own_sum(0u);
}

// The blocks that have a winner better than `best`, in `blocks`, and how many they are.
fn list_better(lid: u32, best: vec4<u32>) -> u32 {
    workgroupBarrier();
    if (lid == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var b = lid; b < BLOCKS; b += WG) {
        if (beats(winners[b], best)) { blocks[atomicAdd(&listed, 1u)] = b; }
    }
    workgroupBarrier();
    return agree(lid, atomicLoad(&listed));
}

@compute @workgroup_size(WG)
fn choose(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    if (lid < SUMS) {
        let at = 3u * lid;
        sums[lid] = sum_of(atomicLoad(&bins[at]), atomicLoad(&bins[at + 1u]), atomicLoad(&bins[at + 2u]));
    }
    if (lid < PICKS) { picks[lid] = winners[MOST_BLOCKS + lid]; }
    let most = maxima[MOST_BLOCKS];
    workgroupBarrier();
    let needed = needed_by_top_p(sums[PICKS]);
    // The first pick that stays; the largest sum that those ahead of it beat, whose tokens nobody weighed;
    // and a token with which all go that are not ahead of it.
    var best = NOBODY_YET;
    var hidden = 0u;
    var bound = NOBODY_YET;
    for (var p = 0u; p < PICKS; p++) {
        let one = picks[p];
        if (!reaches(sums[p], needed)) {
            best = one;
            break;
        }
        hidden = max(hidden, one.w);
        if (is_ahead(one.z, one.y, bound)) { bound = one; }
    }
    var is_known = best.y != NOBODY.index && hidden < best.x;
    // Agreed on, so that all leave the loop together.
    while (agree(lid, u32(is_known)) == 0u) {
        let count = list_better(lid, best);
        var own = NOBODY_YET;
        if (lid == 0u) { own = best; }
        for (var e = 0u; e < count; e++) {
            for (var v = blocks[e] * WG + lid; v < vectors(); v += BLOCKS * WG) {
                let four = keys_again(v);
                let words = random_words(v);
                for (var i = 0u; i < 4u; i++) {
                    let token = 4u * v + i;
                    if (is_ahead(four[i], token, bound)) { own = met(own, four[i], words[i], token); }
                }
            }
        }
        gather_best(lid, lane, subgroup, subgroups, own);
        workgroupBarrier();
        let next = block_best[0];
        // What is ahead of one that stays, stays.
        is_known = next.y == best.y || (best.y != NOBODY.index && is_ahead(next.z, next.y, best));
        if (agree(lid, u32(is_known)) == 0u) {
            is_known = !reaches(weight_ahead(lid, next, most), needed);
        }
        if (is_known) { best = next; } else { bound = next; }
    }
    if (lid == 0u) { end_step(Candidate(value_of(best.x), best.y)); }
}
