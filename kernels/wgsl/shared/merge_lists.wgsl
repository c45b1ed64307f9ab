// Many sorted lists of kept() entries become one, in the first slots: where they are more than fit,
// in two steps. The file that uses it has `lists` and `merged: array<vec2<u32>>` and says how many
// lists there are, listed(). Needs top_list.
override MERGERS: u32 = 16u;

// Slots of a list.
fn list_slots() -> u32 { return power_of_two_from(kept()); }

// The first kept() of lists `first` to `end`, or of those in merged.
fn first_of(lid: u32, first: u32, end: u32, of_merged: bool) {
    let run = list_slots();
    let count = min(SLOTS, power_of_two_from(max(end - first, 1u)) * run);
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
            if (list < end && rank < kept()) {
                let i = list * kept() + rank;
                if (of_merged) { entry = merged[i]; } else { entry = lists[i]; }
            }
            slots[s] = entry;
        }
        join_runs(lid, count, run);
        base += count / run - held;
        held = 1u;
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
    let of_merged = listed() * kept() > SLOTS;
    first_of(lid, 0u, select(listed(), MERGERS, of_merged), of_merged);
}
