// sample/sorted: sorted slices with running sums, and cuts found by bisection over all of them.
//
//   token = the draw of lathe_reference::sample: penalty, 2^(-(max - l) log2(e) / T), top-k, top-p,
//   first token whose cumulative weight exceeds u * total; then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state
//   lists: (slices, 1024) of (key, token), each slice sorted  masses: (slices, 1024), the weight of
//   a slice up to each of them  brackets: (slices)
//
// Idea: any number of tokens may stay. How many tokens and how much weight of a slice lie from a key
// on is a binary search in it, so a cut needs no pass over the logits: the last workgroup finds each
// bit by bit, and every slice only searches between the places of the keys already tried.
// import: grid, math/u64, reduce/sum64, sample/parts/sampling, sample/parts/seen, sort/list
// import: step/choose
override N: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> masses: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> brackets: array<vec4<u32>>;

var<workgroup> tops: array<u32, WG>;

const NOWHERE: u32 = 0xffffffffu;

fn slice_count() -> u32 { return (N + LIST_ENTRIES - 1u) / LIST_ENTRIES; }

@compute @workgroup_size(WG)
fn sort(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let base = group_index(workgroup, groups) * LIST_ENTRIES;
    if (base >= N) { return; }
    mark_seen(lid, base);
    for (var s = lid; s < LIST_ENTRIES; s += WG) {
        let i = base + s;
        var entry = vec2<u32>(0u);
        if (i < N) { entry = vec2<u32>(key_of(logits[i], was_seen(s)), i); }
        list_entries[s] = entry;
    }
    sort_slots(lid, LIST_ENTRIES);
    for (var s = lid; s < LIST_ENTRIES; s += WG) { lists[base + s] = list_entries[s]; }
}

// The largest key of all slices, in every invocation.
fn top_of_all(lid: u32) -> u32 {
    var top = 0u;
    for (var s = lid; s < slice_count(); s += WG) { top = max(top, lists[s * LIST_ENTRIES].x); }
    tops[lid] = top;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step /= 2u) {
        if (lid < step) { tops[lid] = max(tops[lid], tops[lid + step]); }
        workgroupBarrier();
    }
    return tops[0];
}

@compute @workgroup_size(WG)
fn weigh(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let base = group_index(workgroup, groups) * LIST_ENTRIES;
    if (base >= N) { return; }
    let top = top_of_all(lid);
    // Each invocation sums neighbours, then all those before it.
    let each = LIST_ENTRIES / WG;
    var sum = vec2<u32>(0u);
    for (var s = lid * each; s < (lid + 1u) * each; s++) {
        let key = lists[base + s].x;
        if (key > 0u) { sum = add64(sum, weight_of(key, top)); }
        list_entries[s] = sum;
    }
    sum64_slots[lid] = sum;
    workgroupBarrier();
    for (var step = 1u; step < WG; step *= 2u) {
        var before = vec2<u32>(0u);
        if (lid >= step) { before = sum64_slots[lid - step]; }
        workgroupBarrier();
        sum64_slots[lid] = add64(sum64_slots[lid], before);
        workgroupBarrier();
    }
    for (var s = lid; s < LIST_ENTRIES; s += WG) {
        var sum = list_entries[s];
        if (s / each > 0u) { sum = add64(sum, sum64_slots[s / each - 1u]); }
        masses[base + s] = sum;
    }
}

fn measure(slice: u32, entries: u32, weighed: bool) -> vec2<u32> {
    if (!weighed) { return vec2<u32>(entries, 0u); }
    if (entries == 0u) { return vec2<u32>(0u); }
    return masses[slice * LIST_ENTRIES + entries - 1u];
}

// Entries of a slice from `key` on, which are at least `least` and at most `most`.
fn entries_from(slice: u32, key: u32, least: u32, most: u32) -> u32 {
    var low = least;
    var high = most;
    // Most keys tried lie outside the slice.
    if (low < high && lists[slice * LIST_ENTRIES + low].x < key) { return low; }
    if (low < high && lists[slice * LIST_ENTRIES + high - 1u].x >= key) { return high; }
    while (low < high) {
        let middle = (low + high) / 2u;
        if (lists[slice * LIST_ENTRIES + middle].x >= key) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// The largest key from which on `needed` is reached. Afterwards brackets[slice].xy are the entries
// of a slice beyond it and from it on.
fn cut(lid: u32, needed: vec2<u32>, weighed: bool) -> u32 {
    for (var s = lid; s < slice_count(); s += WG) {
        brackets[s] = vec4<u32>(0u, min(LIST_ENTRIES, N - s * LIST_ENTRIES), 0u, 0u);
    }
    var key = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        var sum = vec2<u32>(0u);
        for (var s = lid; s < slice_count(); s += WG) {
            let bracket = brackets[s];
            let entries = entries_from(s, key | bit, bracket.x, bracket.y);
            brackets[s].z = entries;
            sum = add64(sum, measure(s, entries, weighed));
        }
        let enough = reaches(workgroup_sum64(lid, sum), needed);
        if (enough) { key |= bit; }
        for (var s = lid; s < slice_count(); s += WG) {
            if (enough) { brackets[s].y = brackets[s].z; } else { brackets[s].x = brackets[s].z; }
        }
    }
    return key;
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    let top = top_of_all(lid);
    var total = vec2<u32>(0u);
    for (var s = lid; s < slice_count(); s += WG) {
        total = add64(total, measure(s, min(LIST_ENTRIES, N - s * LIST_ENTRIES), true));
    }
    total = workgroup_sum64(lid, total);
    var rank = 0u;
    // Top-k, top-p and draw: each leaves the weight up to its last token. A loop, so that the cut is
    // compiled once.
    for (var round = 0u; round < 3u; round++) {
        if (round == 0u && (tokens_kept() == 0u || tokens_kept() >= N)) { continue; }
        if (round == 1u && TOP_P >= 1.0) { continue; }
        var needed = vec2<u32>(tokens_kept(), 0u);
        if (round == 1u) { needed = needed_by_top_p(total); }
        if (round == 2u) { needed = needed_by_draw(total); }
        let w = weight_of(cut(lid, needed, round > 0u), top);
        var above = vec2<u32>(0u);
        var tokens = vec2<u32>(0u); // beyond the key, of the key
        for (var s = lid; s < slice_count(); s += WG) {
            let bracket = brackets[s];
            above = add64(above, measure(s, bracket.x, true));
            tokens += vec2<u32>(bracket.x, bracket.y - bracket.x);
        }
        above = workgroup_sum64(lid, above);
        tokens = workgroup_sum64(lid, tokens);
        if (round == 0u) {
            rank = tokens_kept() - tokens.x;
        } else {
            rank = tokens_to_reach(needed, above, w, tokens.y);
        }
        total = add64(above, times64(w, rank));
    }
    // Of equal keys the lower token comes first, and so does the slice it lies in: every invocation
    // has neighbouring slices and knows how many ties lie before them.
    storageBarrier();
    workgroupBarrier();
    let each = (slice_count() + WG - 1u) / WG;
    let first = min(lid * each, slice_count());
    let end = min(first + each, slice_count());
    var ties = 0u;
    for (var s = first; s < end; s++) { ties += brackets[s].y - brackets[s].x; }
    tops[lid] = ties;
    workgroupBarrier();
    for (var step = 1u; step < WG; step *= 2u) {
        var before = 0u;
        if (lid >= step) { before = tops[lid - step]; }
        workgroupBarrier();
        tops[lid] += before;
        workgroupBarrier();
    }
    var before = tops[lid] - ties;
    var place = NOWHERE;
    for (var s = first; s < end; s++) {
        let here = brackets[s].y - brackets[s].x;
        if (before < rank && rank <= before + here) {
            place = s * LIST_ENTRIES + brackets[s].x + rank - before - 1u;
        }
        before += here;
    }
    if (place != NOWHERE) { end_step(Candidate(0.0, lists[place].y)); }
}
