// Many sorted lists of kept() entries become one, in the first slots: where they are more than fit,
// in two steps. The file that uses it has `lists` and `merged: array<vec2<u32>>` and says how many
// entries lists hold, listed(). Needs top_list.
override MERGERS: u32 = 16u;

// The first kept() of lists[first..end], or of merged.
fn first_of(lid: u32, first: u32, end: u32, of_merged: bool) {
    let count = min(SLOTS, power_of_two_from(max(end - first, kept())));
    // The first slots hold the entries so far, once there are any.
    var held = 0u;
    var base = first;
    while (base < end) {
        for (var s = held + lid; s < count; s += WG) {
            let i = base + s - held;
            var entry = vec2<u32>(0u);
            if (i < end) {
                if (of_merged) { entry = merged[i]; } else { entry = lists[i]; }
            }
            slots[s] = entry;
        }
        sort_slots(lid, count);
        base += count - held;
        held = kept();
    }
}

// One of MERGERS workgroups' share, which it leaves in merged.
fn merge_share(lid: u32, group: u32) {
    let share = (listed() + MERGERS - 1u) / MERGERS;
    let end = min((group + 1u) * share, listed());
    for (var s = lid; s < kept(); s += WG) { slots[s] = vec2<u32>(0u); }
    workgroupBarrier();
    first_of(lid, min(group * share, end), end, false);
    for (var s = lid; s < kept(); s += WG) { merged[group * kept() + s] = slots[s]; }
}

// All of them; after merge_share where there are more than fit.
fn merge_all(lid: u32) {
    let of_merged = listed() > SLOTS;
    first_of(lid, 0u, select(listed(), MERGERS * kept(), of_merged), of_merged);
}
