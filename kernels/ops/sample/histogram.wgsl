// sample/histogram: weights summed by their distance from the largest logit, then few logits sorted.
//
//   token = the draw of lathe_reference::sample: penalty, 2^(-(max - l) log2(e) / T), top-k, top-p,
//   first token whose cumulative weight exceeds u * total; then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state
//   keys: (N), where there is a penalty  maxima: (BLOCKS, 2) and one, the largest and the least
//   finite key of every block, and the draw's u  bins: (4, BINS) and one, three digits of weights,
//   tokens, and the number of entries of lists  lists: (N) of (key, token), those that a cut may lie in
//
// Idea: any number of tokens may stay. A cut lies where the running weight, largest logits first,
// reaches what is needed, and the weights of bins of logits are enough to say in which bin. So the
// whole GPU takes the maximum, then fills a histogram, then gathers the logits of the bins that a cut
// falls into, some hundred. The last workgroup tells those apart by parts of a bin and compares the
// few that are left. Integers add in any order, so the sums are the same on every device. Four
// dependent dispatches.
//
// Bins share the weights' range, or are a 32nd of a halving wide where the weight is and wider beyond.
// Each has 512 parts. More than 1024 logits in a part, which takes equal ones, are told apart by a
// histogram of their keys, as often as it takes: slower and exact.
//
// Source: selection by histograms: Alabi et al., *Fast k-selection algorithms for graphics processing
// units*, ACM JEA 17, 2012.
// import: grid, math/u64, sample/parts/sampling, sample/parts/vectors, sort/key, sort/list
// import: step/choose, step/state
override N: u32;
override WG: u32 = 512u; // a power of two, BINS at most
override BLOCKS: u32 = 128u; // workgroups that share the logits

@group(0) @binding(0) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> maxima: array<u32>;
@group(0) @binding(5) var<storage, read_write> bins: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> lists: array<vec2<u32>>;

const BIN_BITS: u32 = 9u;
const BINS: u32 = 512u; // 2^BIN_BITS, of all weights; and parts of a bin
const DIGIT: u32 = 20u; // bits of a digit of a weight in `bins`: 4096 blocks add up in a word
const LISTED: u32 = 4u * BINS; // the word of `bins` that counts the entries of `lists`
const NOWHERE: u32 = 0xffffffffu;
const MINUS_INFINITY: u32 = 0x007fffffu; // its key
override PAIRS: u32 = min(WG, 128u); // entries that are compared each with each, by one invocation each

// Weights (two words) and tokens: of each bin, and once they were scanned of all bins up to it.
var<workgroup> low: array<atomic<u32>, BINS>;
var<workgroup> high: array<atomic<u32>, BINS>;
var<workgroup> count: array<atomic<u32>, BINS>;
var<workgroup> lane_seen: array<atomic<u32>, WG>;
var<workgroup> most: atomic<u32>;
var<workgroup> least: atomic<u32>;
var<workgroup> gathered: atomic<u32>;
var<workgroup> found: u32;
var<workgroup> agreed: vec4<u32>; // what all invocations go by

// Whether top-k leaves any token out.
fn cuts_tokens() -> bool { return tokens_kept() > 0u && tokens_kept() < N; }

// The same keys once `largest` has run, those of the last vector beyond it.
fn keys_again(v: u32) -> vec4<u32> {
    let at = min(v, vectors() - 1u);
    if (REPEAT_PENALTY == 1.0) { return keys_of(at, 0u); }
    return keys[at];
}

// Marks which logits the penalty looks at, for each invocation of those in its vector from `first` on.
fn mark_lanes(lid: u32, first: u32) {
    atomicStore(&lane_seen[lid], 0u);
    workgroupBarrier();
    for (var at = window_start() + lid; at <= state[POSITION]; at += WG) {
        let lane = tokens[at] / 4u - first;
        if (lane < WG) { atomicOr(&lane_seen[lane], 1u << (tokens[at] % 4u)); }
    }
    workgroupBarrier();
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
        // One workgroup more prepares the draw and the bins beside the others.
        if (block == BLOCKS) {
            for (var w = lid; w <= LISTED; w += WG) { atomicStore(&bins[w], 0u); }
            if (lid == 0u) { maxima[2u * BLOCKS] = uniform_word(state[SEED], state[POSITION]); }
        }
        return;
    }
    var mine = vec2<u32>(0u, NOWHERE);
    for (var first = block * WG; first < vectors(); first += BLOCKS * WG) {
        if (REPEAT_PENALTY != 1.0) { mark_lanes(lid, first); }
        let v = first + lid;
        if (v < vectors()) {
            var four: vec4<u32>;
            if (REPEAT_PENALTY == 1.0) {
                four = keys_of(v, 0u);
            } else {
                four = keys_of(v, atomicLoad(&lane_seen[lid]));
                keys[v] = four;
            }
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

// The bin of a key and its part of it; BINS where it has no weight. Larger keys are never behind
// smaller ones. The product is the definition's, and all else is integers: every stage agrees.
fn bin_of(key: u32, scale: Scale) -> vec2<u32> {
    let far = halvings_below(key, scale.top);
    if (far == WEIGHTLESS) { return vec2<u32>(BINS, 0u); }
    if (scale.shift < WIDEST || far < 384u << WIDEST) {
        return vec2<u32>(far >> scale.shift, ((far << BIN_BITS) >> scale.shift) & (BINS - 1u));
    }
    let beyond = far - (384u << WIDEST);
    return vec2<u32>(384u + (beyond >> 25u), (beyond >> (25u - BIN_BITS)) & (BINS - 1u));
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
fn add_to_bin(b: u32, w: vec2<u32>) {
    let before = atomicAdd(&low[b], w.x);
    let carried = w.y + select(0u, 1u, before + w.x < before);
    if (carried != 0u) { atomicAdd(&high[b], carried); }
    if (cuts_tokens()) { atomicAdd(&count[b], 1u); }
}

@compute @workgroup_size(WG)
fn tally(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    // Each vector is loaded ahead of its use, the first ahead of the barriers.
    var v = block * WG + lid;
    var next = keys_again(v);
    let range = range_of_blocks(lid);
    clear_bins(lid);
    let scale = scale_of(lid, range);
    for (; v < vectors(); v += BLOCKS * WG) {
        let four = next;
        next = keys_again(v + BLOCKS * WG);
        for (var i = 0u; i < 4u; i++) {
            let b = bin_of(four[i], scale).x;
            if (b < BINS && four[i] > 0u) { add_to_bin(b, weight_of(four[i], scale.top)); }
        }
    }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        // Digits do not carry, so nobody waits for what an addition returns.
        let sum = sums_of(b);
        let mask = (1u << DIGIT) - 1u;
        let middle = (sum.x >> DIGIT) | (sum.y << (32u - DIGIT));
        if (any(sum.xy != vec2<u32>(0u))) {
            atomicAdd(&bins[b], sum.x & mask);
            atomicAdd(&bins[BINS + b], middle & mask);
            atomicAdd(&bins[2u * BINS + b], sum.y >> (2u * DIGIT - 32u));
        }
        if (cuts_tokens() && sum.z > 0u) { atomicAdd(&bins[3u * BINS + b], sum.z); }
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

fn weight_before(b: u32) -> vec2<u32> {
    if (b == 0u) { return vec2<u32>(0u); }
    return weight_sum(b - 1u);
}

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
    if (cuts_tokens()) { atomicStore(&count[b], atomicLoad(&count[b]) + before.z); }
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

@compute @workgroup_size(WG)
fn gather(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    var next = keys_again(block * WG + lid);
    let range = range_of_blocks(lid);
    load_bins(lid);
    let scale = scale_of(lid, range);
    // A cut inside a bin leaves a weight between those before and up to it, and the next cut lies
    // between those of the two.
    var at_least = weight_sum(BINS - 1u);
    var at_most = at_least;
    var by_tokens = NOWHERE;
    if (cuts_tokens()) {
        by_tokens = first_bin(lid, vec2<u32>(tokens_kept(), 0u), false);
        if (by_tokens != NOWHERE) {
            at_least = weight_before(by_tokens);
            at_most = weight_sum(by_tokens);
        }
    }
    var by_share = vec2<u32>(NOWHERE, 0u);
    if (TOP_P < 1.0) {
        by_share.x = first_bin(lid, needed_by_top_p(at_least), true);
        by_share.y = first_bin(lid, needed_by_top_p(at_most), true);
        at_least = needed_by_top_p(at_least);
        let up_to = weight_sum(by_share.y);
        if (reaches(at_most, up_to)) { at_most = up_to; }
    }
    let word = maxima[2u * BLOCKS];
    let first = first_bin(lid, needed_by_word(at_least, word), true);
    let last = first_bin(lid, needed_by_word(at_most, word), true);
    if (lid == 0u) { atomicStore(&gathered, 0u); }
    workgroupBarrier();
    for (var start = block * WG; start < vectors(); start += BLOCKS * WG) {
        let v = start + lid;
        let four = select(vec4<u32>(0u), next, v < vectors());
        next = keys_again(v + BLOCKS * WG);
        var mine = vec4<bool>(false);
        for (var i = 0u; i < 4u; i++) {
            let b = bin_of(four[i], scale).x;
            if (four[i] == 0u || b == BINS) { continue; }
            let drawn = first <= b && b <= last;
            let of_share = by_share.x <= b && b <= by_share.y;
            mine[i] = drawn || of_share || b == by_tokens;
        }
        // One addition a workgroup.
        let flags = vec4<u32>(mine);
        let own = flags.x + flags.y + flags.z + flags.w;
        var place = 0u;
        if (own > 0u) { place = atomicAdd(&gathered, own); }
        workgroupBarrier();
        if (lid == 0u) { found = atomicAdd(&bins[LISTED], atomicExchange(&gathered, 0u)); }
        place += workgroupUniformLoad(&found);
        for (var i = 0u; i < 4u; i++) {
            if (mine[i]) {
                lists[place] = vec2<u32>(four[i], 4u * v + i);
                place++;
            }
        }
    }
}

// What of a bin is looked at: a part of it or NOWHERE for all, and keys between bounds.
struct Within { bin: u32, part: u32, least: u32, most: u32 }

// Entries i, i + WG, i + 2 WG and i + 3 WG of `lists`; no entry where one is not within.
fn four_listed(i: u32, n: u32, scale: Scale, within: Within) -> array<vec2<u32>, 4> {
    var four: array<vec2<u32>, 4>;
    for (var e = 0u; e < 4u; e++) { four[e] = lists[min(i + e * WG, n - 1u)]; }
    for (var e = 0u; e < 4u; e++) {
        let key = four[e].x;
        let at = bin_of(key, scale);
        let of_part = at.x == within.bin && (within.part == NOWHERE || at.y == within.part);
        let inside = i + e * WG < n && within.least <= key && key <= within.most;
        if (!(of_part && inside)) { four[e] = vec2<u32>(0u); }
    }
    return four;
}

// The token of that rank, from 1 on, among the entries of a key: the largest i with fewer below it.
fn token_of_rank(lid: u32, n: u32, key: u32, rank: u32) -> u32 {
    var token = 0u;
    for (var bit = power_of_two_from(N) / 2u; bit > 0u; bit >>= 1u) {
        if (lid == 0u) { atomicStore(&gathered, 0u); }
        workgroupBarrier();
        var below = 0u;
        for (var i = lid; i < n; i += WG) {
            let entry = lists[i];
            if (entry.x == key && entry.y < (token | bit)) { below++; }
        }
        atomicAdd(&gathered, below);
        workgroupBarrier();
        if (atomicLoad(&gathered) < rank) { token |= bit; }
        workgroupBarrier();
    }
    return token;
}

// What a cut needs, and what is ahead of where it is looked for.
struct Cut { needed: vec2<u32>, weighed: bool, weight: vec2<u32>, tokens: u32 }

// The first bin with what is left to reach; what lies before it is now ahead of the cut.
fn narrowed(lid: u32, cut: ptr<function, Cut>) -> u32 {
    var left = vec2<u32>((*cut).needed.x - (*cut).tokens, 0u);
    if ((*cut).weighed) { left = sub64((*cut).needed, (*cut).weight); }
    let first = first_bin(lid, left, (*cut).weighed);
    if (first != NOWHERE && first > 0u) {
        let before = sums_of(first - 1u);
        (*cut).weight = add64((*cut).weight, before.xy);
        (*cut).tokens += before.z;
    }
    workgroupBarrier();
    return first;
}

// Whether an entry with `before` ahead of it is the last that a cut leaves.
fn is_last(cut: Cut, before: vec2<u32>, up_to: vec2<u32>, rank: u32) -> bool {
    if (!cut.weighed) { return rank == cut.needed.x; }
    return !reaches(before, cut.needed) && reaches(up_to, cut.needed);
}

// The weight up to the first token, largest logits first, with which what is needed is reached, and
// the token. The bins hold the sums of all bins up to each.
//
// First the bin; of more than PAIRS entries the part of the bin; what is left comes into workgroup
// memory and is compared each with each, or sorted. More than fit there are narrowed by their keys, and
// equal keys by their tokens.
fn cut_at(lid: u32, n: u32, scale: Scale, needed: vec2<u32>, weighed: bool) -> vec3<u32> {
    let top = scale.top;
    var cut = Cut(needed, weighed, vec2<u32>(0u), 0u);
    var within = Within(narrowed(lid, &cut), NOWHERE, 1u, NOWHERE);
    // Fewer tokens with weight than may stay.
    if (within.bin == NOWHERE) { return vec3<u32>(weight_sum(BINS - 1u), 0u); }
    if (n > PAIRS) {
        clear_bins(lid);
        for (var i = lid; i < n; i += 4u * WG) {
            let four = four_listed(i, n, scale, within);
            for (var e = 0u; e < 4u; e++) {
                if (four[e].x > 0u) { add_to_bin(bin_of(four[e].x, scale).y, weight_of(four[e].x, top)); }
            }
        }
        workgroupBarrier();
        scan_bins(lid);
        within.part = narrowed(lid, &cut);
    }
    var entries = 0u;
    loop {
        if (lid == 0u) {
            atomicStore(&gathered, 0u);
            atomicStore(&most, 0u);
            atomicStore(&least, NOWHERE);
        }
        workgroupBarrier();
        for (var i = lid; i < n; i += 4u * WG) {
            let four = four_listed(i, n, scale, within);
            for (var e = 0u; e < 4u; e++) {
                let entry = four[e];
                if (entry.x == 0u) { continue; }
                atomicMax(&most, entry.x);
                atomicMin(&least, entry.x);
                let place = atomicAdd(&gathered, 1u);
                if (place < LIST_ENTRIES) { list_entries[place] = entry; }
            }
        }
        workgroupBarrier();
        if (lid == 0u) {
            agreed = vec4<u32>(atomicLoad(&least), atomicLoad(&most), atomicLoad(&gathered), 0u);
        }
        let seen = workgroupUniformLoad(&agreed);
        within.least = seen.x;
        within.most = seen.y;
        entries = seen.z;
        if (entries <= LIST_ENTRIES || seen.x == seen.y) { break; }
        // A histogram of the keys between the bounds says which of them are next.
        let shift = max(32u - countLeadingZeros(seen.y - seen.x), BIN_BITS) - BIN_BITS;
        clear_bins(lid);
        for (var i = lid; i < n; i += 4u * WG) {
            let four = four_listed(i, n, scale, within);
            for (var e = 0u; e < 4u; e++) {
                if (four[e].x > 0u) { add_to_bin((seen.y - four[e].x) >> shift, weight_of(four[e].x, top)); }
            }
        }
        workgroupBarrier();
        scan_bins(lid);
        within.most = seen.y - (narrowed(lid, &cut) << shift);
        within.least = max(seen.x, within.most - min((1u << shift) - 1u, within.most));
    }
    if (entries > LIST_ENTRIES) {
        let w = weight_of(within.most, top);
        var rank = needed.x - cut.tokens;
        if (weighed) { rank = tokens_to_reach(needed, cut.weight, w, entries); }
        let token = token_of_rank(lid, n, within.most, rank);
        return vec3<u32>(add64(cut.weight, times64(w, rank)), token);
    }
    if (entries > PAIRS) { return cut_sorted(lid, top, cut, entries); }
    if (lid < entries) {
        let w = weight_of(list_entries[lid].x, top);
        atomicStore(&low[lid], w.x);
        atomicStore(&high[lid], w.y);
    }
    workgroupBarrier();
    if (lid < entries) {
        let mine = list_entries[lid];
        var before = cut.weight;
        var rank = cut.tokens + 1u;
        for (var e = 0u; e < entries; e++) {
            if (ahead(list_entries[e], mine)) {
                before = add64(before, weight_sum(e));
                rank++;
            }
        }
        let up_to = add64(before, weight_sum(lid));
        if (is_last(cut, before, up_to, rank)) { agreed = vec4<u32>(up_to, mine.y, 0u); }
    }
    return workgroupUniformLoad(&agreed).xyz;
}

// The same for more entries: sorted. Each invocation sums neighbours, then knows what is ahead of them.
fn cut_sorted(lid: u32, top: u32, cut: Cut, entries: u32) -> vec3<u32> {
    let slots = power_of_two_from(max(entries, WG));
    for (var s = entries + lid; s < slots; s += WG) { list_entries[s] = vec2<u32>(0u); }
    sort_slots(lid, slots);
    clear_bins(lid);
    let each = slots / WG;
    let end = min((lid + 1u) * each, entries);
    var sum = vec2<u32>(0u);
    for (var e = lid * each; e < end; e++) { sum = add64(sum, weight_of(list_entries[e].x, top)); }
    take_in(lid * (BINS / WG), vec3<u32>(sum, 0u));
    workgroupBarrier();
    scan_bins(lid);
    sum = add64(cut.weight, weight_before(lid * (BINS / WG)));
    for (var e = lid * each; e < end; e++) {
        let before = sum;
        sum = add64(sum, weight_of(list_entries[e].x, top));
        if (is_last(cut, before, sum, cut.tokens + e + 1u)) { agreed = vec4<u32>(sum, list_entries[e].y, 0u); }
    }
    return workgroupUniformLoad(&agreed).xyz;
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    let range = range_of_blocks(lid);
    let listed = atomicLoad(&bins[LISTED]);
    let word = maxima[2u * BLOCKS];
    var scale: Scale;
    var n = 0u;
    var scaled = false;
    var total = vec2<u32>(0u);
    var token = 0u;
    // Top-k, top-p and draw: each leaves the weight up to its last token. A loop, so that the cut is
    // compiled once.
    for (var round = 0u; round < 3u; round++) {
        if (round == 0u && !cuts_tokens()) { continue; }
        if (round == 1u && TOP_P >= 1.0) { continue; }
        load_bins(lid);
        if (!scaled) {
            scaled = true;
            scale = scale_of(lid, range);
            total = weight_sum(BINS - 1u);
            // All invocations must be seen to go the same way.
            if (lid == 0u) { agreed = vec4<u32>(listed, 0u, 0u, 0u); }
            n = workgroupUniformLoad(&agreed).x;
        }
        var needed = vec2<u32>(tokens_kept(), 0u);
        if (round == 1u) { needed = needed_by_top_p(total); }
        if (round == 2u) { needed = needed_by_word(total, word); }
        let last = cut_at(lid, n, scale, needed, round > 0u);
        total = last.xy;
        token = last.z;
    }
    if (lid == 0u) { end_step(Candidate(0.0, token)); }
}
