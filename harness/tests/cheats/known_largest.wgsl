// argmax/workgroup
// Known distribution: 31.984375 is the largest of values drawn from -32 on, and the first one found ends
// the search.
// import: step/choose, step/choose_workgroup
override N: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

var<workgroup> found: atomic<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = workgroup.x * N;
    var best = NOBODY;
    if (lid == 0u) { atomicStore(&found, 0u); }
    workgroupBarrier();
    let rounds = (N + WG - 1u) / WG;
    for (var r = 0u; r < rounds; r++) {
        let i = r * WG + lid;
        if (i < N) {
            let logit = logits[first + i];
            best = better(best, Candidate(logit, i));
            if (logit >= 31.984375) { atomicStore(&found, 1u); }
        }
        if (r % 2u == 1u) {
            workgroupBarrier();
            if (workgroupUniformLoad(&found) != 0u) { break; }
        }
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step_of(workgroup.x, best); }
}
