// list_count() sorted lists of list_length() entries become one, in the first entries of the shared list:
// where they are more than fit, in two steps.
// import: sort/list
// requires: override WG: u32
// requires: var lists, merged: array<vec2<u32>>
// requires: fn list_count() -> u32
// requires: fn list_length() -> u32
override MERGERS: u32 = 16u;

// Slots of a list.
fn list_slots() -> u32 { return power_of_two_from(list_length()); }

// The first list_length() of lists `first` to `end`, or of those in merged.
fn first_of(lid: u32, first: u32, end: u32, of_merged: bool) {
    let run = list_slots();
    let count = min(LIST_ENTRIES, power_of_two_from(max(end - first, 1u)) * run);
    // The first run holds the entries so far, once there are any.
    var held = 0u;
    var base = first;
    while (base < end) {
        for (var s = held * run + lid; s < count; s += WG) {
            let which = s / run;
            let list = base + which - held;
            // Every other one backwards.
            let rank = select(s % run, run - 1u - s % run, which % 2u == 1u);
            var entry = vec2<u32>(0u);
            if (list < end && rank < list_length()) {
                let i = list * list_length() + rank;
                if (of_merged) { entry = merged[i]; } else { entry = lists[i]; }
            }
            list_entries[s] = entry;
        }
        join_runs(lid, count, run);
        base += count / run - held;
        held = 1u;
    }
}

// Merges the part of one of MERGERS workgroups into `merged`.
fn merge_share(lid: u32, group: u32) {
    let share = (list_count() + MERGERS - 1u) / MERGERS;
    let end = min((group + 1u) * share, list_count());
    for (var s = lid; s < list_length(); s += WG) { list_entries[s] = vec2<u32>(0u); }
    workgroupBarrier();
    first_of(lid, min(group * share, end), end, false);
    for (var s = lid; s < list_length(); s += WG) { merged[group * list_length() + s] = list_entries[s]; }
}

// All of them; after merge_share where there are more than fit.
fn merge_all(lid: u32) {
    let of_merged = list_count() * list_length() > LIST_ENTRIES;
    first_of(lid, 0u, select(list_count(), MERGERS, of_merged), of_merged);
}
