// sample/candidates: every slice of the logits gives its first TOP_K, merged in two steps.
//
//   logits: (N)  tokens: (positions)  state: the step state
//   lists: (slices, k) of (key, token)  merged: (MERGERS, k)
//
// Idea: the whole GPU sorts slices in workgroup memory, and no other token than the first k of a
// slice can stay. Then few lists are left, and the last workgroup sums, cuts and draws in its own
// memory. For up to 256 tokens that stay; three dependent dispatches, two where the lists are short.
// import: grid, math/u64, sample/parts/sampling, sample/parts/seen, sort/list, sort/merge
// import: step/choose, step/choose_workgroup
override WG: u32 = 256u;
override SLICE: u32 = 1024u;

@group(0) @binding(3) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> merged: array<vec2<u32>>;

const MOST: u32 = 256u;
// Running sums, from one half to the other.
var<workgroup> sums: array<vec2<u32>, 512>;

fn list_length() -> u32 { return TOP_K; }

fn list_count() -> u32 { return (N + SLICE - 1u) / SLICE; }

@compute @workgroup_size(WG)
fn slices(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let slice = group_index(workgroup, groups);
    let end = min((slice + 1u) * SLICE, N);
    let count = min(LIST_ENTRIES, power_of_two_from(max(SLICE, list_length())));
    // The first list_length() slots hold the list so far, once there is one.
    var held = 0u;
    var base = slice * SLICE;
    while (base < end) {
        mark_seen(lid, base);
        for (var s = held + lid; s < count; s += WG) {
            let i = base + s - held;
            if (i < end) {
                list_entries[s] = vec2<u32>(key_of(logits[i], was_seen(i - base)), i);
            } else {
                list_entries[s] = vec2<u32>(0u);
            }
        }
        first_slots(lid, count, list_slots());
        base += count - held;
        held = list_length();
    }
    if (slice * SLICE >= N) { return; }
    for (var s = lid; s < list_length(); s += WG) { lists[slice * list_length() + s] = list_entries[s]; }
}

@compute @workgroup_size(WG)
fn merge(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    merge_all(lid);
    for (var e = lid; e < MOST; e += WG) {
        var w = vec2<u32>(0u);
        if (e < list_length() && list_entries[e].x > 0u) { w = weight_of(list_entries[e].x, list_entries[0].x); }
        sums[e] = w;
    }
    workgroupBarrier();
    var half = 0u;
    for (var step = 1u; step < MOST; step *= 2u) {
        for (var e = lid; e < MOST; e += WG) {
            var sum = sums[half + e];
            if (e >= step) { sum = add64(sum, sums[half + e - step]); }
            sums[(half ^ MOST) + e] = sum;
        }
        workgroupBarrier();
        half ^= MOST;
    }
    let needed = needed_by_top_p(sums[half + MOST - 1u]);
    var best = NOBODY;
    for (var e = lid; e < list_length(); e += WG) {
        let entry = list_entries[e];
        let ahead_of_it = sums[half + max(e, 1u) - 1u];
        if (entry.x == 0u || (TOP_P < 1.0 && e > 0u && reaches(ahead_of_it, needed))) { break; }
        best = better(best, Candidate(noisy_token(entry.x, entry.y), entry.y));
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step(best); }
}
