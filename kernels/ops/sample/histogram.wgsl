// sample/histogram: weights and winners by their distance from the largest logit.
//
//   logits: (N)  tokens: (positions)  state: the step state
//   keys: (N), where there is a penalty
//   maxima: (BLOCKS, 2), the largest and the least finite key of every block
//   bins: (5, BINS), three digits of weights, tokens, the largest sum of logit and noise
//   winners: (BLOCKS, BINS, 2), that sum in every block and the token that has it
//   lists: (N, 2), key and token of what lies in a bin
//
// Idea: a cut lies where the running weight, largest logits first, reaches what is needed, and the
// weights of bins of logits say in which bin. All ahead of that bin stay and all behind it go: if one
// ahead of it has a larger sum than any in it, nobody needs to know where in the bin the cut lies. So
// the whole GPU takes the maximum, then fills bins with weights and winners, and the last workgroup
// compares 512 of them. Integers add in any order, so the sums are the same on every device. Three
// dependent dispatches, for any number of tokens.
//
// Bins share the weights' range, or are a 32nd of a halving wide where the weight is and wider beyond.
// Where the best of the cut's bin would win, the last workgroup lists the bin, from the blocks that have a
// winner in it, and narrows it to the keys and tokens about the cut: slower and exact. With both cuts what
// top-k leaves is known but for a small part of its own bin, so the cut of top-p mostly lies in one.
//
// Source: selection by histograms: Alabi et al., *Fast k-selection algorithms for graphics processing
// units*, ACM JEA 17, 2012.
// import: grid, math/u64, sample/parts/lanes, sample/parts/sampling, sample/parts/vectors, sort/key
// import: step/choose
override WG: u32 = 256u; // a power of two, four at least
override BLOCKS: u32 = 128u; // workgroups that share the logits, 256 at most

@group(0) @binding(3) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> maxima: array<u32>;
@group(0) @binding(5) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> winners: array<vec2<u32>>;
@group(0) @binding(7) var<storage, read_write> lists: array<vec2<u32>>;

const BIN_BITS: u32 = 9u;
const BINS: u32 = 512u; // 2^BIN_BITS
const DIGIT: u32 = 20u; // bits of a digit of a weight in `bins`: 4096 blocks add up in a word
const TOKENS: u32 = 3u * BINS;
const BEST: u32 = 4u * BINS;
const NOWHERE: u32 = 0xffffffffu;
const MINUS_INFINITY: u32 = 0x007fffffu; // its key
const FULL_WEIGHT = vec2<u32>(0u, 256u); // the largest weight

// Weights (two words) and tokens: of each bin, and once they were scanned of all bins up to it.
var<workgroup> low: array<atomic<u32>, BINS>;
var<workgroup> high: array<atomic<u32>, BINS>;
var<workgroup> count: array<atomic<u32>, BINS>;
// The largest sum of each bin, as a key, and the lowest token that has it.
var<workgroup> bin_best: array<atomic<u32>, BINS>;
var<workgroup> bin_first: array<atomic<u32>, BINS>;
// Blocks that have a token in a bin, or bins whose best is a sum.
var<workgroup> picked: array<atomic<u32>, BINS>;
var<workgroup> most: atomic<u32>;
var<workgroup> rival: atomic<u32>;
var<workgroup> least: atomic<u32>;
var<workgroup> listed: atomic<u32>;
var<workgroup> found: u32;
var<workgroup> bounds: array<u32, 2>;

// Whether top-k leaves any token out.
fn cuts_tokens() -> bool { return TOP_K > 0u && TOP_K < N; }

// The key of a token once `largest` has run, and those of vector v, none beyond the last.
fn key_again(token: u32) -> u32 {
    if (REPEAT_PENALTY == 1.0) { return key_of(logits[token / 4u][token % 4u], false); }
    return keys[token / 4u][token % 4u];
}
fn keys_again(v: u32) -> vec4<u32> {
    let at = min(v, vectors() - 1u);
    var four: vec4<u32>;
    if (REPEAT_PENALTY == 1.0) { four = keys_of(at, 0u); } else { four = keys[at]; }
    return select(vec4<u32>(0u), four, v < vectors());
}

// The largest and the least of a workgroup, in every invocation.
fn workgroup_range(lid: u32, mine: vec2<u32>) -> vec2<u32> {
    workgroupBarrier();
    if (lid == 0u) {
        atomicStore(&most, 0u);
        atomicStore(&least, NOWHERE);
    }
    workgroupBarrier();
    atomicMax(&most, mine.x);
    atomicMin(&least, mine.y);
    workgroupBarrier();
    return vec2<u32>(atomicLoad(&most), atomicLoad(&least));
}

@compute @workgroup_size(WG)
fn largest(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) {
        // One workgroup more clears the bins beside the others.
        if (block == BLOCKS) {
            for (var w = lid; w < BEST + BINS; w += WG) { atomicStore(&bins[w], 0u); }
        }
        return;
    }
    var mine = vec2<u32>(0u, NOWHERE);
    for (var first = block * WG; first < vectors(); first += BLOCKS * WG) {
        let seen = seen_by_lane(lid, first);
        let v = first + lid;
        if (v < vectors()) {
            let four = keys_of(v, seen);
            if (REPEAT_PENALTY != 1.0) { keys[v] = four; }
            mine.x = max(mine.x, max(max(four.x, four.y), max(four.z, four.w)));
            // Of minus infinity and of no logit nothing is drawn beside others.
            let finite = select(vec4<u32>(NOWHERE), four, four > vec4<u32>(MINUS_INFINITY));
            mine.y = min(mine.y, min(min(finite.x, finite.y), min(finite.z, finite.w)));
        }
    }
    let both = workgroup_range(lid, mine);
    if (lid == 0u) {
        maxima[2u * block] = both.x;
        maxima[2u * block + 1u] = both.y;
    }
}

// This invocation's share of the blocks' keys.
fn range_of_blocks(lid: u32) -> vec2<u32> {
    var mine = vec2<u32>(0u, NOWHERE);
    for (var b = lid; b < BLOCKS; b += WG) {
        mine = vec2<u32>(max(mine.x, maxima[2u * b]), min(mine.y, maxima[2u * b + 1u]));
    }
    return mine;
}

// The largest key, and the bits of 2^-26 of a halving that a bin has.
struct Scale { top: u32, shift: u32 }
const WIDEST: u32 = 21u; // bits of a 32nd

// Bins for all weights from the largest to the least key, in every invocation.
fn scale_of(lid: u32, mine: vec2<u32>) -> Scale {
    let range = workgroup_range(lid, mine);
    let bits = 32u - countLeadingZeros(halvings_below(min(range.y, range.x), range.x));
    return Scale(range.x, min(max(bits, BIN_BITS) - BIN_BITS, WIDEST));
}

// The bin of so many halvings; BINS from 63 on. Larger keys are never behind smaller ones: the
// product is the definition's, and all else is integers, so every stage agrees.
fn bin_at(far: u32, scale: Scale) -> u32 {
    if (far == WEIGHTLESS) { return BINS; }
    if (scale.shift < WIDEST || far < 384u << WIDEST) { return far >> scale.shift; }
    return 384u + ((far - (384u << WIDEST)) >> 25u);
}

fn clear_bins(lid: u32) {
    for (var b = lid; b < BINS; b += WG) {
        atomicStore(&low[b], 0u);
        atomicStore(&high[b], 0u);
        atomicStore(&count[b], 0u);
    }
    workgroupBarrier();
}

// Adds to a bin of this workgroup. Each addition that wraps the low word carries once, in any order.
fn add_to_bin(b: u32, w: vec2<u32>, counted: bool) {
    let before = atomicAdd(&low[b], w.x);
    let carried = w.y + select(0u, 1u, before + w.x < before);
    if (carried != 0u) { atomicAdd(&high[b], carried); }
    if (counted) { atomicAdd(&count[b], 1u); }
}

@compute @workgroup_size(WG)
fn tally(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    let range = range_of_blocks(lid);
    clear_bins(lid);
    for (var b = lid; b < BINS; b += WG) {
        atomicStore(&bin_best[b], 0u);
        atomicStore(&bin_first[b], NOWHERE);
    }
    let scale = scale_of(lid, range);
    for (var first = block * WG; first < N; first += BLOCKS * WG) {
        let token = first + lid;
        var b = BINS;
        var sum = 0u;
        if (token < N) {
            let key = key_again(token);
            let far = halvings_below(key, scale.top);
            b = select(bin_at(far, scale), BINS, key == 0u);
            if (b < BINS) {
                sum = sort_key(noisy_token(key, token));
                add_to_bin(b, weight_below(far), cuts_tokens());
                // Whoever had a smaller sum is not first with it any more.
                if (atomicMax(&bin_best[b], sum) < sum) { atomicStore(&bin_first[b], NOWHERE); }
            }
        }
        workgroupBarrier();
        if (b < BINS && sum == atomicLoad(&bin_best[b])) { atomicMin(&bin_first[b], token); }
        workgroupBarrier();
    }
    for (var b = lid; b < BINS; b += WG) {
        let top = atomicLoad(&bin_best[b]);
        winners[block * BINS + b] = vec2<u32>(top, atomicLoad(&bin_first[b]));
        if (top == 0u) { continue; }
        // Digits do not carry, so nobody waits for what an addition returns.
        let sum = sums_of(b);
        let mask = (1u << DIGIT) - 1u;
        let middle = (sum.x >> DIGIT) | (sum.y << (32u - DIGIT));
        atomicAdd(&bins[b], sum.x & mask);
        atomicAdd(&bins[BINS + b], middle & mask);
        atomicAdd(&bins[2u * BINS + b], sum.y >> (2u * DIGIT - 32u));
        if (cuts_tokens()) { atomicAdd(&bins[TOKENS + b], sum.z); }
        atomicMax(&bins[BEST + b], top);
    }
}

// Weights and tokens of all bins up to each, and the best of each.
fn load_bins(lid: u32) {
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        var sum = vec2<u32>(0u, atomicLoad(&bins[2u * BINS + b]) << (2u * DIGIT - 32u));
        let middle = atomicLoad(&bins[BINS + b]);
        sum = add64(sum, vec2<u32>(middle << DIGIT, middle >> (32u - DIGIT)));
        sum = add64(sum, vec2<u32>(atomicLoad(&bins[b]), 0u));
        atomicStore(&low[b], sum.x);
        atomicStore(&high[b], sum.y);
        atomicStore(&count[b], atomicLoad(&bins[TOKENS + b]));
        atomicStore(&bin_best[b], atomicLoad(&bins[BEST + b]));
    }
    workgroupBarrier();
    scan_bins(lid);
}

fn weight_sum(b: u32) -> vec2<u32> { return vec2<u32>(atomicLoad(&low[b]), atomicLoad(&high[b])); }

// Weight and tokens of all bins ahead of b.
fn ahead_of(b: u32) -> vec3<u32> { return select(vec3<u32>(0u), sums_of(max(b, 1u) - 1u), b > 0u); }

// Weights and tokens of each bin become those of all bins up to it.
fn scan_bins(lid: u32) {
    let each = max(BINS / WG, 1u);
    let is_mine = lid * each < BINS;
    let last = lid * each + each - 1u;
    if (is_mine) {
        for (var b = lid * each; b < last; b++) { take_in(b + 1u, sums_of(b)); }
    }
    workgroupBarrier();
    // Eight of the sums so far make one of eight times as many bins.
    for (var step = each; step < BINS; step *= 8u) {
        var before = vec3<u32>(0u);
        if (is_mine) {
            for (var back = step; back < min(8u * step, last + 1u); back += step) {
                let one = sums_of(last - back);
                before = vec3<u32>(add64(before.xy, one.xy), before.z + one.z);
            }
        }
        workgroupBarrier();
        if (is_mine) { take_in(last, before); }
        workgroupBarrier();
    }
    if (is_mine && lid > 0u) {
        let before = sums_of(lid * each - 1u);
        for (var b = lid * each; b < last; b++) { take_in(b, before); }
    }
    workgroupBarrier();
}

// Weight and tokens up to bin b.
fn sums_of(b: u32) -> vec3<u32> { return vec3<u32>(weight_sum(b), atomicLoad(&count[b])); }

// Adds them to those of bin b, which is this invocation's.
fn take_in(b: u32, before: vec3<u32>) {
    let sum = add64(weight_sum(b), before.xy);
    atomicStore(&low[b], sum.x);
    atomicStore(&high[b], sum.y);
    atomicStore(&count[b], atomicLoad(&count[b]) + before.z);
}

// What lies up to bin b: weight, or tokens.
fn measure(b: u32, weighed: bool) -> vec2<u32> {
    if (weighed) { return weight_sum(b); }
    return vec2<u32>(atomicLoad(&count[b]), 0u);
}

// The first bin up to which lies what is needed, more than nothing; BINS where it is more than all.
fn first_bin(lid: u32, needed: vec2<u32>, weighed: bool) -> u32 {
    if (lid == 0u) { found = BINS; }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        let before = b > 0u && reaches(measure(max(b, 1u) - 1u, weighed), needed);
        if (!before && reaches(measure(b, weighed), needed)) { found = b; }
    }
    return workgroupUniformLoad(&found);
}

// The same for two weights that are known roughly.
fn first_bins(lid: u32, needed: vec2<f32>) -> array<u32, 2> {
    if (lid == 0u) { bounds = array(BINS, BINS); }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        let before = rough(ahead_of(b).xy);
        let up_to = rough(weight_sum(b));
        if (before < needed.x && up_to >= needed.x) { bounds[0] = b; }
        if (before < needed.y && up_to >= needed.y) { bounds[1] = b; }
    }
    return workgroupUniformLoad(&bounds);
}

fn rough(weight: vec2<u32>) -> f32 { return f32(weight.y) * 4294967296.0 + f32(weight.x); }

// At least and at most what must be reached for top-p, of what top-k leaves, whose cut is in `bin`. Of its
// tokens those with the largest weights stay: no less than their share of the bin's weight, and no more
// than as many times the largest weight, at most a 32nd of a halving above the mean, or half of one. What
// floats round, and where weights are not in the keys' order, is less than a part in 100,000.
fn needed_roughly(bin: u32) -> vec2<f32> {
    let total = sums_of(min(bin, BINS - 1u));
    var left = vec2<f32>(rough(total.xy));
    if (cuts_tokens() && bin < BINS) {
        let ahead = ahead_of(bin);
        let all = rough(sub64(total.xy, ahead.xy));
        let part = all * (f32(TOP_K - ahead.z) / f32(total.z - ahead.z));
        let most = min(part * select(1.0220, 1.4143, bin >= 384u), all);
        left = rough(ahead.xy) + vec2<f32>(part, most);
    }
    return max(left * TOP_P * vec2<f32>(0.99999, 1.00001), vec2<f32>(1.0));
}

// One value for all invocations, that of the first.
fn agree(lid: u32, value: u32) -> u32 {
    workgroupBarrier();
    if (lid == 0u) { found = value; }
    return workgroupUniformLoad(&found);
}

// What stays of a bin: keys beyond `key`, of that key the tokens up to `token`; and the weight of all
// that stays.
struct Cut { key: u32, token: u32, weight: vec2<u32> }

// Lists key and token of what lies in a bin, and counts them: of the blocks that have a winner in it.
fn list_bin(lid: u32, scale: Scale, bin: u32) -> u32 {
    if (lid == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var block = lid; block < BLOCKS; block += WG) {
        if (winners[block * BINS + bin].x > 0u) { atomicStore(&picked[atomicAdd(&listed, 1u)], block); }
    }
    workgroupBarrier();
    let each = WG / 4u; // vectors that a block has in a round
    let in_round = agree(lid, atomicLoad(&listed)) * each;
    if (lid == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var first = 0u; first < vectors(); first += BLOCKS * each) {
        for (var at = lid; at < in_round; at += WG) {
            let v = first + atomicLoad(&picked[at / each]) * each + at % each;
            let four = keys_again(v);
            for (var i = 0u; i < 4u; i++) {
                let far = halvings_below(four[i], scale.top);
                if (four[i] > 0u && bin_at(far, scale) == bin) {
                    lists[atomicAdd(&listed, 1u)] = vec2<u32>(four[i], 4u * v + i);
                }
            }
        }
    }
    storageBarrier();
    workgroupBarrier();
    return agree(lid, atomicLoad(&listed));
}

// Where among n listed ones what is needed is reached, with `before` ahead of them: weight and tokens.
fn cut_in(lid: u32, n: u32, top: u32, before: vec3<u32>, needed: vec2<u32>, weighed: bool) -> Cut {
    var mine = vec2<u32>(0u, NOWHERE);
    for (var e = lid; e < n; e += WG) { mine = vec2<u32>(max(mine.x, lists[e].x), min(mine.y, lists[e].x)); }
    mine = workgroup_range(lid, mine);
    var upper = agree(lid, mine.x);
    var lower = agree(lid, mine.y);
    var passed = before;
    var inside: vec3<u32>; // weight and tokens from lower to upper
    // A histogram of the keys between the bounds says which of them are next.
    loop {
        let shift = max(32u - countLeadingZeros(upper - lower), BIN_BITS) - BIN_BITS;
        clear_bins(lid);
        for (var e = lid; e < n; e += WG) {
            let key = lists[e].x;
            if (lower <= key && key <= upper) { add_to_bin((upper - key) >> shift, weight_of(key, top), true); }
        }
        workgroupBarrier();
        scan_bins(lid);
        var left = vec2<u32>(needed.x - passed.z, 0u);
        if (weighed) { left = sub64(needed, passed.xy); }
        let part = first_bin(lid, left, weighed);
        let up_to = sums_of(part);
        let between = ahead_of(part);
        inside = vec3<u32>(sub64(up_to.xy, between.xy), up_to.z - between.z);
        passed = vec3<u32>(add64(passed.xy, between.xy), passed.z + between.z);
        upper -= part << shift;
        lower = max(lower, upper - min((1u << shift) - 1u, upper));
        if (shift == 0u || agree(lid, inside.z) == 1u) { break; }
    }
    let w = weight_of(upper, top);
    var rank = needed.x - passed.z;
    if (weighed) { rank = tokens_to_reach(needed, passed.xy, w, inside.z); }
    if (agree(lid, u32(inside.z == 1u || rank == inside.z)) == 1u) {
        return Cut(lower, NOWHERE, add64(passed.xy, inside.xy));
    }
    return Cut(upper, token_of_rank(lid, n, upper, rank), add64(passed.xy, times64(w, rank)));
}

// The token of that rank, from 1 on, among the listed ones of a key.
fn token_of_rank(lid: u32, n: u32, key: u32, rank: u32) -> u32 {
    var left = rank;
    var start = 0u;
    // Tokens of one part, then of a part of it.
    var shift = max(32u - countLeadingZeros(N - 1u), BIN_BITS) - BIN_BITS;
    loop {
        clear_bins(lid);
        for (var e = lid; e < n; e += WG) {
            let entry = lists[e];
            let part = (entry.y - start) >> shift;
            if (entry.x == key && entry.y >= start && part < BINS) { atomicAdd(&count[part], 1u); }
        }
        workgroupBarrier();
        scan_bins(lid);
        let part = first_bin(lid, vec2<u32>(left, 0u), false);
        left -= ahead_of(part).z;
        start += part << shift;
        workgroupBarrier();
        if (shift == 0u) { break; }
        shift = max(shift, BIN_BITS) - BIN_BITS;
    }
    return start;
}

// The largest sum ahead of a bin, and from there to another.
fn best_ahead(lid: u32, bin: u32, last: u32) -> vec2<u32> {
    workgroupBarrier();
    if (lid == 0u) {
        atomicStore(&most, 0u);
        atomicStore(&rival, 0u);
    }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        let best = atomicLoad(&bin_best[b]);
        if (b < bin) { atomicMax(&most, best); } else if (b <= last) { atomicMax(&rival, best); }
    }
    workgroupBarrier();
    return vec2<u32>(atomicLoad(&most), atomicLoad(&rival));
}

// The lowest token that has it.
fn token_ahead(lid: u32, bin: u32, sum: u32) -> u32 {
    workgroupBarrier();
    if (lid == 0u) {
        atomicStore(&listed, 0u);
        atomicStore(&least, NOWHERE);
    }
    workgroupBarrier();
    for (var b = lid; b < bin; b += WG) {
        if (atomicLoad(&bin_best[b]) == sum) { atomicStore(&picked[atomicAdd(&listed, 1u)], b); }
    }
    workgroupBarrier();
    for (var e = 0u; e < atomicLoad(&listed); e++) {
        let b = atomicLoad(&picked[e]);
        for (var block = lid; block < BLOCKS; block += WG) {
            let own = winners[block * BINS + b];
            if (own.x == sum) { atomicMin(&least, own.y); }
        }
    }
    workgroupBarrier();
    return atomicLoad(&least);
}

// The largest sum of what stays of the listed ones, and the lowest token that has it.
fn best_listed(lid: u32, n: u32, cut: Cut) -> vec2<u32> {
    workgroupBarrier();
    if (lid == 0u) {
        atomicStore(&most, 0u);
        atomicStore(&least, NOWHERE);
    }
    workgroupBarrier();
    for (var e = lid; e < n; e += WG) {
        let entry = lists[e];
        let stays = entry.x > cut.key || (entry.x == cut.key && entry.y <= cut.token);
        lists[e].x = select(0u, sort_key(noisy_token(entry.x, entry.y)), stays);
        atomicMax(&most, lists[e].x);
    }
    workgroupBarrier();
    for (var e = lid; e < n; e += WG) {
        if (lists[e].x == atomicLoad(&most)) { atomicMin(&least, lists[e].y); }
    }
    workgroupBarrier();
    return vec2<u32>(atomicLoad(&most), atomicLoad(&least));
}

// Whether the largest logit has all the weight of its bin: often it has nearly all there is, and it stays.
fn largest_is_alone() -> bool { return all(weight_sum(0u) == FULL_WEIGHT); }

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    load_bins(lid);
    // The cut lies in a bin from `bin` to `last`, hardly ever more than one.
    var bin = BINS;
    if (cuts_tokens()) { bin = first_bin(lid, vec2<u32>(TOP_K, 0u), false); }
    var last = bin;
    if (TOP_P < 1.0) {
        let both = first_bins(lid, needed_roughly(bin));
        bin = both[0];
        last = both[1];
    }
    if (bin == 0u && largest_is_alone()) { bin = 1u; }
    let best = best_ahead(lid, bin, last);
    var winner = best.x;
    var own = vec2<u32>(0u);
    if (agree(lid, u32(bin <= last && bin < BINS && best.y >= best.x)) == 1u) {
        // Top-k, then top-p: a loop, so that the cut is compiled once.
        var left = weight_sum(BINS - 1u);
        for (var round = 0u; round < 2u; round++) {
            if (round == 0u && !cuts_tokens()) { continue; }
            if (round == 1u && TOP_P >= 1.0) { continue; }
            var needed = vec2<u32>(TOP_K, 0u);
            if (round == 1u) { needed = needed_by_top_p(left); }
            bin = first_bin(lid, needed, round == 1u);
            if (agree(lid, u32(bin == BINS || (bin == 0u && largest_is_alone()))) == 1u) {
                if (bin == 0u) {
                    bin = 1u;
                    left = FULL_WEIGHT;
                }
                winner = best_ahead(lid, bin, bin).x;
                own = vec2<u32>(0u);
                continue;
            }
            winner = best_ahead(lid, bin, bin).x;
            let scale = scale_of(lid, range_of_blocks(lid));
            let n = list_bin(lid, scale, bin);
            let cut = cut_in(lid, n, scale.top, ahead_of(bin), needed, round == 1u);
            left = cut.weight;
            if (round == 0u && TOP_P < 1.0) { load_bins(lid); } else { own = best_listed(lid, n, cut); }
        }
    }
    var token = token_ahead(lid, bin, winner);
    if (own.x == winner) { token = min(own.y, token); }
    if (own.x > winner) { token = own.y; }
    if (lid == 0u) { end_step(Candidate(value_of(max(own.x, winner)), token)); }
}
