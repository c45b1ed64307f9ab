// argmax/workgroup: one workgroup reads every logit.
//
// Idea: one dispatch, no scratch; right for small vocabularies, but one core of the GPU reads all.
// import: step/choose, step/choose_workgroup
override WG: u32 = 256u;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = workgroup.x * N;
    var best = NOBODY;
    for (var i = lid; i < N; i += WG) { best = better(best, candidate(logits[first + i], i)); }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step_of(workgroup.x, best); }
}
