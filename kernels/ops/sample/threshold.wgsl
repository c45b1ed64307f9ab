// sample/threshold: the k-th largest of many groups' maxima bounds what can stay; few logits do.
//
//   logits: (N)  tokens: (positions)  state: the step state
//   keys: (N), where there is a penalty  maxima: (GROUPS), the largest key of every group
//
// Idea: nothing is sorted but what may be drawn. The whole GPU takes the maximum of every group of
// logits. k groups have a maximum not below the k-th largest of them, so k logits are not either,
// and whatever is below it cannot stay. The bound is taken of COARSE maxima, few enough to be ranked
// by comparing all pairs: one step instead of the dozens of rounds of a sort, each a barrier. With
// twice as many of them as k, some 1.3 k logits reach the bound. The last workgroup reads only the
// groups that have one, ranks what it finds, sums, cuts and draws. Two dependent dispatches.
//
// Group g has the vectors of four logits i with i % GROUPS = g, so that neighbouring tokens, often
// alike, fall into different groups. More logits on the bound than fit in workgroup memory, which
// takes many equal ones, are streamed through it and sorted again and again: slow and exact.
//
// Source: maxima of groups as delegates: Gaihre et al., *Dr. Top-k: delegate-centric top-k on GPUs*,
// SC21, arXiv:2109.08219. Ranks by counting: Knuth, *The Art of Computer Programming* 3, 5.2.
// import: grid, math/u64, sample/parts/sampling, sample/parts/vectors, sort/key, sort/list
// import: step/choose
override WG: u32 = 512u; // a power of two, at least SLICE_RUN
override BLOCKS: u32 = 128u; // workgroups that take maxima
override COARSE: u32 = 128u; // maxima that are ranked: k to 512, faster from twice k on

const SLICE_RUN: u32 = 32u; // neighbouring vectors that a workgroup loads at once
override GROUPS: u32 = SLICE_RUN * BLOCKS;

@group(0) @binding(3) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> maxima: array<u32>;

// Half of the slots is ranked into the other half; then sums take the first half.
const RANKED: u32 = LIST_ENTRIES / 2u;
const SUMS: u32 = LIST_ENTRIES / 4u; // as many tokens as may be kept
const CHUNK: u32 = 8u; // tokens whose weights are summed together first
const QUEUE: u32 = 512u; // groups waiting to be read
const ROUND: u32 = 128u; // vectors streamed at a time

var<workgroup> lane_maxima: array<u32, WG>;
var<workgroup> run_seen: array<atomic<u32>, WG>;
var<workgroup> coarse: array<atomic<u32>, COARSE>;
var<workgroup> ranks: array<atomic<u32>, RANKED>;
var<workgroup> queue: array<u32, QUEUE>;
var<workgroup> queued: atomic<u32>;
var<workgroup> gathered: atomic<u32>;
var<workgroup> agreed: u32; // what all invocations go by
var<workgroup> top: atomic<u32>;
var<workgroup> kth: atomic<u32>;
var<workgroup> cut: vec2<u32>;
var<workgroup> largest: atomic<u32>; // sum of logit and noise
var<workgroup> lowest: atomic<u32>; // token that has it

// Vectors of a group.
fn rows() -> u32 { return (vectors() + GROUPS - 1u) / GROUPS; }

// Marks which logits the penalty looks at, for each invocation of those in its vector of the rows
// from `first` on.
fn mark_lanes(lid: u32, block: u32, first: u32) {
    atomicStore(&run_seen[lid], 0u);
    workgroupBarrier();
    for (var at = window_start() + lid; at <= state[POSITION]; at += WG) {
        let v = tokens[at] / 4u;
        let row = v / GROUPS - first;
        if (v % GROUPS / SLICE_RUN == block && row < WG / SLICE_RUN) {
            atomicOr(&run_seen[row * SLICE_RUN + v % SLICE_RUN], 1u << (tokens[at] % 4u));
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(WG)
fn scan(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    var most = 0u;
    for (var first = 0u; first < rows(); first += WG / SLICE_RUN) {
        if (REPEAT_PENALTY != 1.0) { mark_lanes(lid, block, first); }
        let v = (first + lid / SLICE_RUN) * GROUPS + block * SLICE_RUN + lid % SLICE_RUN;
        if (v < vectors()) {
            var four: vec4<u32>;
            if (REPEAT_PENALTY == 1.0) {
                four = keys_of(v, 0u);
            } else {
                four = keys_of(v, atomicLoad(&run_seen[lid]));
                keys[v] = four;
            }
            most = max(most, max(max(four.x, four.y), max(four.z, four.w)));
        }
    }
    lane_maxima[lid] = most;
    workgroupBarrier();
    if (lid < SLICE_RUN) {
        for (var s = lid + SLICE_RUN; s < WG; s += SLICE_RUN) { most = max(most, lane_maxima[s]); }
        maxima[block * SLICE_RUN + lid] = most;
    }
}

// Counts for each of the first n slots those ahead of it, in `ranks`, which were 0. All invocations
// share the pairs.
fn rank_slots(lid: u32, n: u32) {
    let width = min(n, WG);
    let shares = WG / width;
    if (lid >= shares * width) { return; }
    for (var i = lid % width; i < n; i += width) {
        let mine = list_entries[i];
        var before = 0u;
        for (var j = lid / width; j < n; j += shares) {
            before += select(0u, 1u, ahead(list_entries[j], mine));
        }
        atomicAdd(&ranks[i], before);
    }
}

// Four groups for each invocation, of 4 * WG at a time.
fn four_groups(first: u32, lid: u32) -> vec4<u32> {
    return vec4<u32>(first + lid) + vec4<u32>(0u, WG, 2u * WG, 3u * WG);
}

// Their maxima; past the end 0.
fn four_maxima(groups: vec4<u32>) -> vec4<u32> {
    let g = min(groups, vec4<u32>(GROUPS - 1u));
    let m = vec4<u32>(maxima[g.x], maxima[g.y], maxima[g.z], maxima[g.w]);
    return select(vec4<u32>(0u), m, groups < vec4<u32>(GROUPS));
}

fn raise_coarse(groups: vec4<u32>, m: vec4<u32>) {
    let g = groups % vec4<u32>(COARSE);
    if (WG % COARSE == 0u) { // one and the same
        atomicMax(&coarse[g.x], max(max(m.x, m.y), max(m.z, m.w)));
        return;
    }
    atomicMax(&coarse[g.x], m.x);
    atomicMax(&coarse[g.y], m.y);
    atomicMax(&coarse[g.z], m.z);
    atomicMax(&coarse[g.w], m.w);
}

// Puts the k-th largest of the coarse maxima in `kth`, 0 where there are fewer, and the largest in
// `top`. `first` are the maxima of an invocation's first four groups.
fn bound_kept(lid: u32, first: vec4<u32>) {
    raise_coarse(four_groups(0u, lid), first);
    for (var rest = 4u * WG; rest < GROUPS; rest += 4u * WG) {
        raise_coarse(four_groups(rest, lid), four_maxima(four_groups(rest, lid)));
    }
    workgroupBarrier();
    for (var i = lid; i < COARSE / 2u; i += WG) {
        list_entries[i] = vec2<u32>(atomicLoad(&coarse[2u * i]), atomicLoad(&coarse[2u * i + 1u]));
    }
    workgroupBarrier();
    // A rank's lower half counts the keys that are larger, its upper half those that are not smaller.
    let width = min(COARSE, WG);
    for (var i = lid % width; i < COARSE; i += width) {
        let mine = vec4<u32>(atomicLoad(&coarse[i]));
        var before = vec4<u32>(0u);
        for (var j = 0u; j < COARSE / 4u; j += WG / width) {
            let at = 2u * (j + lid / width);
            let four = vec4<u32>(list_entries[at], list_entries[at + 1u]);
            before += select(vec4<u32>(0u), vec4<u32>(1u), four > mine);
            before += select(vec4<u32>(0u), vec4<u32>(0x10000u), four >= mine);
        }
        atomicAdd(&ranks[i], before.x + before.y + before.z + before.w);
    }
    workgroupBarrier();
    for (var i = lid; i < COARSE; i += WG) {
        let rank = atomicExchange(&ranks[i], 0u);
        let mine = atomicLoad(&coarse[i]);
        if ((rank & 0xffffu) == 0u) { atomicStore(&top, mine); }
        if ((rank & 0xffffu) < TOP_K && (rank >> 16u) >= TOP_K) { atomicStore(&kth, mine); }
    }
    workgroupBarrier();
}

// The key beyond which logits may be drawn. Those that equal the bound are, unless their weight is
// nothing beside the largest: so logits masked with -infinity are left out however many they are.
fn beyond() -> u32 {
    let most = atomicLoad(&top);
    let bound = atomicLoad(&kth);
    let weightless = bound < most && !((value_of(most) - value_of(bound)) * EXPONENT < 63.0);
    if (bound == 0u || weightless) { return bound; }
    return bound - 1u;
}

fn enqueue_four(groups: vec4<u32>, m: vec4<u32>, least: u32) {
    enqueue(groups.x, m.x, least);
    enqueue(groups.y, m.y, least);
    enqueue(groups.z, m.z, least);
    enqueue(groups.w, m.w, least);
}

fn enqueue(group: u32, most: u32, least: u32) {
    if (most <= least) { return; }
    let place = atomicAdd(&queued, 1u);
    if (place < QUEUE) { queue[place] = group; }
}

fn gather(entry: vec2<u32>, after: vec2<u32>) {
    if (!ahead(entry, after)) { return; }
    let place = atomicAdd(&gathered, 1u);
    if (place < LIST_ENTRIES) { list_entries[place] = entry; }
}

// Gathers what is ahead of `after` in vector i of those waiting.
fn gather_four(i: u32, all: bool, after: vec2<u32>) {
    var group = i / rows();
    if (!all) { group = queue[group]; }
    let v = i % rows() * GROUPS + group;
    if (v >= vectors()) { return; }
    var four: vec4<u32>;
    if (REPEAT_PENALTY == 1.0) { four = keys_of(v, 0u); } else { four = keys[v]; }
    gather(vec2<u32>(four.x, 4u * v), after);
    gather(vec2<u32>(four.y, 4u * v + 1u), after);
    gather(vec2<u32>(four.z, 4u * v + 2u), after);
    gather(vec2<u32>(four.w, 4u * v + 3u), after);
}

// Where more are beyond the bound than fit: whenever half of the slots is full, the first k in order
// stay and the last of them is the new bound. Returns how many are left.
fn stream(lid: u32, least: u32) -> u32 {
    if (lid == 0u) {
        atomicStore(&gathered, 0u);
        cut = vec2<u32>(least, 0u);
        let waiting = atomicLoad(&queued);
        agreed = select(waiting, GROUPS, waiting > QUEUE);
    }
    let waiting = workgroupUniformLoad(&agreed);
    let end = waiting * rows();
    var held = 0u;
    for (var first = 0u; first < end; first += ROUND) {
        for (var i = first + lid; i < min(first + ROUND, end); i += WG) {
            gather_four(i, waiting == GROUPS, cut);
        }
        workgroupBarrier();
        if (lid == 0u) { agreed = atomicLoad(&gathered); }
        held = workgroupUniformLoad(&agreed);
        if (held > LIST_ENTRIES - 4u * ROUND) {
            for (var s = held + lid; s < LIST_ENTRIES; s += WG) { list_entries[s] = vec2<u32>(0u); }
            sort_slots(lid, LIST_ENTRIES);
            held = TOP_K;
            if (lid == 0u) {
                atomicStore(&gathered, held);
                cut = list_entries[held - 1u];
            }
            workgroupBarrier();
        }
    }
    return held;
}

// The first k of n slots, in order, from slot RANKED on.
fn arrange(lid: u32, n: u32) {
    if (n <= RANKED) {
        rank_slots(lid, n);
        workgroupBarrier();
        for (var i = lid; i < n; i += WG) {
            let rank = atomicLoad(&ranks[i]);
            if (rank < TOP_K) { list_entries[RANKED + rank] = list_entries[i]; }
        }
    } else {
        for (var s = n + lid; s < LIST_ENTRIES; s += WG) { list_entries[s] = vec2<u32>(0u); }
        sort_slots(lid, LIST_ENTRIES);
        for (var s = lid; s < TOP_K; s += WG) { list_entries[RANKED + s] = list_entries[s]; }
    }
    workgroupBarrier();
}

// Whether the tokens ahead of the e-th reach what top-p needs of all `count`.
fn cut_by_top_p(e: u32, count: u32) -> bool {
    var before = vec2<u32>(0u);
    var total = vec2<u32>(0u);
    for (var first = 0u; first < count; first += CHUNK) {
        if (first == e - e % CHUNK) { before = total; }
        total = add64(total, list_entries[SUMS + min(first + CHUNK, count) - 1u]);
    }
    if (e % CHUNK != 0u) { before = add64(before, list_entries[SUMS + e - 1u]); }
    return reaches(before, needed_by_top_p(total));
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    // They come while the lists are cleared, and stay: they are looked at twice.
    let first = four_maxima(four_groups(0u, lid));
    for (var i = lid; i < COARSE; i += WG) { atomicStore(&coarse[i], 0u); }
    for (var i = lid; i < RANKED; i += WG) { atomicStore(&ranks[i], 0u); }
    if (lid == 0u) {
        atomicStore(&queued, 0u);
        atomicStore(&gathered, 0u);
        atomicStore(&largest, 0u);
        atomicStore(&lowest, NOBODY.index);
        atomicStore(&top, 0u);
        atomicStore(&kth, 0u);
    }
    workgroupBarrier();
    bound_kept(lid, first);
    let least = beyond();
    enqueue_four(four_groups(0u, lid), first, least);
    for (var rest = 4u * WG; rest < GROUPS; rest += 4u * WG) {
        enqueue_four(four_groups(rest, lid), four_maxima(four_groups(rest, lid)), least);
    }
    workgroupBarrier();
    let waiting = atomicLoad(&queued);
    if (waiting <= QUEUE) {
        for (var i = lid; i < waiting * rows(); i += WG) {
            gather_four(i, false, vec2<u32>(least, 0u));
        }
    }
    workgroupBarrier();
    if (lid == 0u) { agreed = select(atomicLoad(&gathered), LIST_ENTRIES + 1u, waiting > QUEUE); }
    var n = workgroupUniformLoad(&agreed);
    if (n > LIST_ENTRIES) { n = stream(lid, least); }
    arrange(lid, n);

    // At most SUMS tokens. Half of the workgroup weighs them and sums up; noise depends on nothing of that,
    // so the other half makes it meanwhile, its random word before the barrier and what that says after.
    let count = min(n, TOP_K);
    let weighs = lid < WG / 2u;
    for (var e = lid % (WG / 2u); e < count; e += WG / 2u) {
        let entry = list_entries[RANKED + e];
        if (weighs) {
            list_entries[e] = weight_of(entry.x, list_entries[RANKED].x);
        } else {
            atomicStore(&ranks[e], random_word(entry.y));
        }
    }
    workgroupBarrier();
    for (var e = lid % (WG / 2u); e < count; e += WG / 2u) {
        if (weighs) {
            // Over the chunk as far as e.
            var sum = vec2<u32>(0u);
            for (var j = e - e % CHUNK; j <= e; j++) { sum = add64(sum, list_entries[j]); }
            list_entries[SUMS + e] = sum;
        } else {
            let sum = noisy(list_entries[RANKED + e].x, atomicLoad(&ranks[e]));
            atomicStore(&ranks[e], bitcast<u32>(sum));
        }
    }
    workgroupBarrier();
    var best = NOBODY;
    for (var e = lid; e < count; e += WG) {
        if (TOP_P < 1.0 && e > 0u && cut_by_top_p(e, count)) { break; }
        let sum = bitcast<f32>(atomicLoad(&ranks[e]));
        best = better(best, Candidate(sum, list_entries[RANKED + e].y));
    }
    let sum = sort_key(best.value);
    if (best.index != NOBODY.index) { atomicMax(&largest, sum); }
    workgroupBarrier();
    if (sum == atomicLoad(&largest)) { atomicMin(&lowest, best.index); }
    workgroupBarrier();
    if (lid == 0u) { end_step(Candidate(value_of(atomicLoad(&largest)), atomicLoad(&lowest))); }
}
