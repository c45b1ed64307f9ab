// argmax/two_pass: many workgroups choose among their slices, one among those.
//
//   partial_*: (SEQUENCES, PARTS)
//
// Idea: the whole GPU reads the logits; the price is one dependent dispatch.
// import: step/choose, step/choose_workgroup
override WG: u32 = 256u;
override PARTS: u32 = 64u;

@group(0) @binding(3) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(4) var<storage, read_write> partial_indices: array<u32>;

@compute @workgroup_size(WG)
fn slices(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = workgroup.x / PARTS * N;
    var best = NOBODY;
    for (var i = workgroup.x % PARTS * WG + lid; i < N; i += PARTS * WG) {
        best = better(best, candidate(logits[first + i], i));
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) {
        partial_values[workgroup.x] = best.value;
        partial_indices[workgroup.x] = best.index;
    }
}

@compute @workgroup_size(WG)
fn choose(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = workgroup.x * PARTS;
    var best = NOBODY;
    for (var i = first + lid; i < first + PARTS; i += WG) {
        best = better(best, Candidate(partial_values[i], partial_indices[i]));
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step_of(workgroup.x, best); }
}
