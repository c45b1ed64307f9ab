// argmax/workgroup: one workgroup reads every logit.
//
//   token = min { i : logits[i] = max_j logits[j] }, then the step ends (see choose.wgsl)
//   logits: (SEQUENCES, N)  tokens: (positions, SEQUENCES)  state: a row of the step state each
//
// Idea: one dispatch, no scratch; right for small vocabularies, but one core of the GPU reads all.
// import: step/choose, step/choose_workgroup
override N: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = workgroup.x * N;
    var best = NOBODY;
    for (var i = lid; i < N; i += WG) { best = better(best, Candidate(logits[first + i], i)); }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step_of(workgroup.x, best); }
}
