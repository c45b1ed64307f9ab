// argmax/naive: one invocation reads every logit.
//
//   token = min { i : logits[i] = max_j logits[j] }, NO_TOKEN where a logit is not finite; then the
//   step ends (see choose.wgsl)
//   logits: (SEQUENCES, N)  tokens: (positions, SEQUENCES)  state: a row of the step state each
// import: step/choose
override N: u32;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

fn met(best: Candidate, sequence: u32, i: u32) -> Candidate {
    if (i >= N) { return best; }
    return better(best, candidate(logits[sequence * N + i], i));
}

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let sequence = workgroup.x;
    var best = NOBODY;
    // Eight a round: llvmpipe ends an invocation's loops after 65535 rounds.
    for (var i = 0u; i < N; i += 8u) {
        best = met(best, sequence, i);
        best = met(best, sequence, i + 1u);
        best = met(best, sequence, i + 2u);
        best = met(best, sequence, i + 3u);
        best = met(best, sequence, i + 4u);
        best = met(best, sequence, i + 5u);
        best = met(best, sequence, i + 6u);
        best = met(best, sequence, i + 7u);
    }
    end_step_of(sequence, best);
}
