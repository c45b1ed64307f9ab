// argmax/two_pass_subgroup: two_pass with sixteen bytes a load, and a barrier a dispatch.
//
//   partial_*: (SEQUENCES, PARTS)
//
// Idea: both dispatches are latency. With a vector an invocation the logits are one load, and the best of a
// subgroup takes a maximum and a minimum where halving takes a barrier for each step.
// import: step/choose
override N: u32; // with several sequences a multiple of 4
override WG: u32 = 256u;
override PARTS: u32 = 128u;

@group(0) @binding(0) var<storage, read> logits: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(4) var<storage, read_write> partial_indices: array<u32>;

// Subgroups have at least four lanes.
override BEST_SLOTS: u32 = WG / 4u;
var<workgroup> best_values: array<f32, BEST_SLOTS>;
var<workgroup> best_indices: array<u32, BEST_SLOTS>;

// The best of a workgroup's candidates, in every invocation.
fn best_of_subgroups(lane: u32, subgroup: u32, subgroups: u32, mine: Candidate) -> Candidate {
    let value = subgroupMax(mine.value);
    let index = subgroupMin(select(NOBODY.index, mine.index, mine.value == value));
    if (lane == 0u) {
        best_values[subgroup] = value;
        best_indices[subgroup] = index;
    }
    workgroupBarrier();
    var best = NOBODY;
    for (var i = 0u; i < subgroups; i++) { best = better(best, Candidate(best_values[i], best_indices[i])); }
    return best;
}

@compute @workgroup_size(WG)
fn slices(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let fours = (N + 3u) / 4u;
    let first = workgroup.x / PARTS * fours;
    var best = NOBODY;
    for (var v = workgroup.x % PARTS * WG + lid; v < fours; v += PARTS * WG) {
        let four = logits[first + v];
        for (var i = 0u; i < 4u; i++) {
            // Behind the last logit lies padding.
            if (N % 4u == 0u || 4u * v + i < N) { best = better(best, candidate(four[i], 4u * v + i)); }
        }
    }
    best = best_of_subgroups(lane, subgroup, subgroups, best);
    if (lid == 0u) {
        partial_values[workgroup.x] = best.value;
        partial_indices[workgroup.x] = best.index;
    }
}

@compute @workgroup_size(WG)
fn choose(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let first = workgroup.x * PARTS;
    var best = NOBODY;
    for (var i = first + lid; i < first + PARTS; i += WG) {
        best = better(best, Candidate(partial_values[i], partial_indices[i]));
    }
    best = best_of_subgroups(lane, subgroup, subgroups, best);
    if (lid == 0u) { end_step_of(workgroup.x, best); }
}
