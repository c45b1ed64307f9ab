// The best of a workgroup's candidates, in every invocation. WG is a power of two.
// import: step/choose
// requires: override WG: u32
var<workgroup> choose_values: array<f32, WG>;
var<workgroup> choose_indices: array<u32, WG>;

fn workgroup_best(lid: u32, mine: Candidate) -> Candidate {
    choose_values[lid] = mine.value;
    choose_indices[lid] = mine.index;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step /= 2u) {
        if (lid < step) {
            let best = better(
                Candidate(choose_values[lid], choose_indices[lid]),
                Candidate(choose_values[lid + step], choose_indices[lid + step]),
            );
            choose_values[lid] = best.value;
            choose_indices[lid] = best.index;
        }
        workgroupBarrier();
    }
    return Candidate(choose_values[0], choose_indices[0]);
}
