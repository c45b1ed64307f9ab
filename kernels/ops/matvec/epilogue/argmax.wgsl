// The best row of a matrix in two stages: each workgroup leaves its best, the second stage takes
// the best of those, of what earlier parts of the matrix left, and ends the step after the last.
// import: step/choose, step/choose_workgroup
// requires: override WG: u32
// requires: var best_index, partial_indices: array<u32>
// requires: var best_value, partial_values: array<f32>
override PART: u32; // which part of the matrix

// Notes a workgroup's best candidate.
fn store_group_best(group: u32, best: Candidate) {
    partial_values[group] = best.value;
    partial_indices[group] = best.index;
}

// The best of `count` candidates, by a workgroup of WG (a power of two).
fn merge_best(lid: u32, count: u32) {
    var best = NOBODY;
    for (var i = lid; i < count; i += WG) {
        best = better(best, Candidate(partial_values[i], partial_indices[i]));
    }
    best = workgroup_best(lid, best);
    if (lid > 0u) { return; }
    if (PART >= PART_MIDDLE) { best = better(Candidate(best_value[0], best_index[0]), best); }
    best_value[0] = best.value;
    best_index[0] = best.index;
    if (PART == PART_WHOLE || PART == PART_LAST) { end_step(best); }
}
