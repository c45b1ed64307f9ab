// argmax/naive: one invocation reads every logit.
//
//   token = min { i : logits[i] = max_j logits[j] }, then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state
// import: step/choose
override N: u32;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;

@compute @workgroup_size(1)
fn main() {
    var best = NOBODY;
    for (var i = 0u; i < N; i++) { best = better(best, Candidate(logits[i], i)); }
    end_step(best);
}
