// sample/histogram: weights and winners by their distance from the largest logit.
//
//   token = the draw of lathe_reference::sample: penalty, 2^(-(max - l) log2(e) / T), top-k, top-p,
//   of those that stay the largest l + T ln 2 g; then the step ends (see choose.wgsl)
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
// Where the best of the cut's bin would win, or top-p needs the weight that top-k leaves, the last
// workgroup reads the logits again, lists those of the bin, and narrows them to the keys and tokens
// about the cut: slower and exact.
//
// Source: selection by histograms: Alabi et al., *Fast k-selection algorithms for graphics processing
// units*, ACM JEA 17, 2012.
// import: grid, math/u64, sample/parts/lanes, sample/parts/sampling, sample/parts/vectors, sort/key
// import: step/choose, step/choose_workgroup
override N: u32;
override WG: u32 = 256u; // a power of two, BINS at most
override BLOCKS: u32 = 128u; // workgroups that share the logits

@group(0) @binding(0) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
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
var<workgroup> most: atomic<u32>;
var<workgroup> least: atomic<u32>;
var<workgroup> listed: atomic<u32>;
var<workgroup> found: u32;

// Whether top-k leaves any token out.
fn cuts_tokens() -> bool { return TOP_K > 0u && TOP_K < N; }

// The same keys once `largest` has run, none beyond the last vector.
fn keys_again(v: u32) -> vec4<u32> {
    let at = min(v, vectors() - 1u);
    var four: vec4<u32>;
    if (REPEAT_PENALTY == 1.0) { four = keys_of(at, 0u); } else { four = keys[at]; }
    return select(vec4<u32>(0u), four, v < vectors());
}

// The largest and the least of a workgroup, in every invocation.
fn workgroup_range(lid: u32, mine: vec2<u32>) -> vec2<u32> {
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

// How far a weight is from the largest: halvings with 26 fractional bits, as weight_of has them.
struct Scale { top: u32, shift: u32 }
const WEIGHTLESS: u32 = 0xffffffffu;
const WIDEST: u32 = 21u; // bits of a 32nd

fn halvings_below(key: u32, top: u32) -> u32 {
    if (key == top) { return 0u; }
    let t = (value_of(top) - value_of(key)) * EXPONENT;
    if (!(t < 63.0)) { return WEIGHTLESS; }
    return u32(t * 67108864.0);
}

// Bins for all weights from the largest to the least key, in every invocation.
fn scale_of(lid: u32, mine: vec2<u32>) -> Scale {
    let range = workgroup_range(lid, mine);
    let bits = 32u - countLeadingZeros(halvings_below(min(range.y, range.x), range.x));
    return Scale(range.x, min(max(bits, BIN_BITS) - BIN_BITS, WIDEST));
}

// The bin of a key; BINS where it has no weight. Larger keys are never behind smaller ones. The product
// is the definition's, and all else is integers: every stage agrees.
fn bin_of(key: u32, scale: Scale) -> u32 {
    let far = halvings_below(key, scale.top);
    if (key == 0u || far == WEIGHTLESS) { return BINS; }
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
    // Loads and noise of each vector come ahead of what waits for others.
    var next = keys_again(block * WG + lid);
    var words = random_words(block * WG + lid);
    let range = range_of_blocks(lid);
    clear_bins(lid);
    for (var b = lid; b < BINS; b += WG) {
        atomicStore(&bin_best[b], 0u);
        atomicStore(&bin_first[b], NOWHERE);
    }
    let scale = scale_of(lid, range);
    for (var first = block * WG; first < vectors(); first += BLOCKS * WG) {
        let v = first + lid;
        let four = next;
        var at = vec4<u32>(BINS);
        var sums = vec4<u32>(0u);
        for (var i = 0u; i < 4u; i++) {
            let b = bin_of(four[i], scale);
            if (b == BINS) { continue; }
            at[i] = b;
            sums[i] = sort_key(noisy(four[i], words[i]));
            add_to_bin(b, weight_of(four[i], scale.top), cuts_tokens());
            // Whoever had a smaller sum is not first with it any more.
            if (atomicMax(&bin_best[b], sums[i]) < sums[i]) { atomicStore(&bin_first[b], NOWHERE); }
        }
        if (first + BLOCKS * WG < vectors()) {
            next = keys_again(v + BLOCKS * WG);
            words = random_words(v + BLOCKS * WG);
        }
        workgroupBarrier();
        for (var i = 0u; i < 4u; i++) {
            if (at[i] < BINS && sums[i] == atomicLoad(&bin_best[at[i]])) {
                atomicMin(&bin_first[at[i]], 4u * v + i);
            }
        }
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

// Weights and tokens of all bins up to each.
fn load_bins(lid: u32) {
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        var sum = vec2<u32>(0u, atomicLoad(&bins[2u * BINS + b]) << (2u * DIGIT - 32u));
        let middle = atomicLoad(&bins[BINS + b]);
        sum = add64(sum, vec2<u32>(middle << DIGIT, middle >> (32u - DIGIT)));
        sum = add64(sum, vec2<u32>(atomicLoad(&bins[b]), 0u));
        atomicStore(&low[b], sum.x);
        atomicStore(&high[b], sum.y);
        atomicStore(&count[b], atomicLoad(&bins[3u * BINS + b]));
    }
    workgroupBarrier();
    scan_bins(lid);
}

fn weight_sum(b: u32) -> vec2<u32> { return vec2<u32>(atomicLoad(&low[b]), atomicLoad(&high[b])); }

// Weight and tokens of all bins ahead of b.
fn ahead_of(b: u32) -> vec3<u32> { return select(vec3<u32>(0u), sums_of(max(b, 1u) - 1u), b > 0u); }

// Weights and tokens of each bin become those of all bins up to it.
fn scan_bins(lid: u32) {
    let each = BINS / WG;
    let last = (lid + 1u) * each - 1u;
    for (var b = lid * each; b < last; b++) { take_in(b + 1u, sums_of(b)); }
    workgroupBarrier();
    for (var step = 1u; step < WG; step *= 2u) {
        var before = vec3<u32>(0u);
        if (lid >= step) { before = sums_of(last - step * each); }
        workgroupBarrier();
        take_in(last, before);
        workgroupBarrier();
    }
    if (lid > 0u) {
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

// The first bin up to which lies what is needed, or NOWHERE.
fn first_bin(lid: u32, needed: vec2<u32>, weighed: bool) -> u32 {
    if (lid == 0u) { found = NOWHERE; }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        let before = b > 0u && reaches(measure(max(b, 1u) - 1u, weighed), needed);
        if (!before && reaches(measure(b, weighed), needed)) { found = b; }
    }
    return workgroupUniformLoad(&found);
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

// The least key in a bin or ahead of it: smaller keys are never ahead.
fn least_key(bin: u32, scale: Scale) -> u32 {
    var low = 1u;
    var high = scale.top;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        if (bin_of(middle, scale) <= bin) { high = middle; } else { low = middle + 1u; }
    }
    return low;
}

// Lists key and token of what lies in a bin, and counts them. Loads are far apart: four at a time.
fn list_bin(lid: u32, scale: Scale, bin: u32) -> u32 {
    // To compare a key with bounds takes less than to ask for its bin.
    let lower = least_key(bin, scale);
    var upper = scale.top;
    if (bin > 0u) { upper = least_key(bin - 1u, scale) - 1u; }
    if (lid == 0u) { atomicStore(&listed, 0u); }
    workgroupBarrier();
    for (var first = lid; first < vectors(); first += 4u * WG) {
        var four: array<vec4<u32>, 4>;
        for (var e = 0u; e < 4u; e++) { four[e] = keys_again(first + e * WG); }
        for (var e = 0u; e < 4u; e++) {
            for (var i = 0u; i < 4u; i++) {
                if (lower <= four[e][i] && four[e][i] <= upper) {
                    lists[atomicAdd(&listed, 1u)] = vec2<u32>(four[e][i], 4u * (first + e * WG) + i);
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

// The largest sum ahead of a bin.
fn best_ahead(lid: u32, bin: u32) -> u32 {
    workgroupBarrier();
    if (lid == 0u) { atomicStore(&most, 0u); }
    workgroupBarrier();
    for (var b = lid; b < bin; b += WG) { atomicMax(&most, atomicLoad(&bins[BEST + b])); }
    workgroupBarrier();
    return agree(lid, atomicLoad(&most));
}

// The lowest token that has it.
fn token_ahead(lid: u32, bin: u32, sum: u32) -> u32 {
    if (lid == 0u) {
        atomicStore(&listed, 0u);
        atomicStore(&least, NOWHERE);
    }
    workgroupBarrier();
    for (var b = lid; b < bin; b += WG) {
        if (atomicLoad(&bins[BEST + b]) == sum) { atomicStore(&bin_first[atomicAdd(&listed, 1u)], b); }
    }
    workgroupBarrier();
    for (var e = 0u; e < atomicLoad(&listed); e++) {
        let b = atomicLoad(&bin_first[e]);
        for (var block = lid; block < BLOCKS; block += WG) {
            let own = winners[block * BINS + b];
            if (own.x == sum) { atomicMin(&least, own.y); }
        }
    }
    workgroupBarrier();
    return atomicLoad(&least);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    let range = range_of_blocks(lid);
    load_bins(lid);
    let scale = scale_of(lid, range);
    var cut = Cut(0u, 0u, weight_sum(BINS - 1u));
    var bin = BINS; // of the last cut
    var winner = 0u; // the largest sum ahead of it
    var may_win = false; // whether one in it may have a larger one
    var n = 0u; // what is listed of it
    // Top-k, top-p, or neither: a loop, so that the cut is compiled once.
    for (var round = 0u; round < 3u; round++) {
        if (round == 0u && !cuts_tokens()) { continue; }
        if (round == 1u && TOP_P >= 1.0) { continue; }
        if (round == 2u && (cuts_tokens() || TOP_P < 1.0)) { continue; }
        var needed = vec2<u32>(TOP_K, 0u);
        if (round == 1u) { needed = needed_by_top_p(cut.weight); }
        if (round < 2u) { bin = min(first_bin(lid, needed, round == 1u), BINS); }
        // The largest logit by itself stays: often it has nearly all the weight.
        let alone = bin == 0u && agree(lid, u32(all(weight_sum(0u) == FULL_WEIGHT))) == 1u;
        if (alone) {
            bin = 1u;
            cut.weight = FULL_WEIGHT;
        }
        let last = round > 0u || TOP_P >= 1.0;
        if (last) {
            winner = best_ahead(lid, bin);
            if (bin < BINS && !alone) { may_win = agree(lid, atomicLoad(&bins[BEST + bin])) >= winner; }
            if (!may_win) { break; }
        }
        if (bin == BINS || alone) { continue; }
        n = list_bin(lid, scale, bin);
        cut = cut_in(lid, n, scale.top, ahead_of(bin), needed, round == 1u);
        if (!last) { load_bins(lid); }
    }
    var own = NOBODY;
    if (may_win) {
        for (var e = lid; e < n; e += WG) {
            let entry = lists[e];
            let stays = entry.x > cut.key || (entry.x == cut.key && entry.y <= cut.token);
            if (stays) { own = better(own, Candidate(noisy_token(entry.x, entry.y), entry.y)); }
        }
        own = workgroup_best(lid, own);
        workgroupBarrier();
    }
    let other = token_ahead(lid, bin, winner);
    if (lid == 0u) {
        let sum = select(sort_key(own.value), 0u, own.index == NOBODY.index);
        if (sum > winner) { end_step(own); }
        if (sum == winner) { end_step(Candidate(0.0, min(own.index, other))); }
        if (sum < winner) { end_step(Candidate(0.0, other)); }
    }
}
