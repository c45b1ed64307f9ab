// Candidates of an argmax, and the end of a step.
// import: step/state
// requires: var state: array<u32>
// requires: var tokens: array<u32>
struct Candidate { value: f32, index: u32 }

// No logit yet: any number beats it, NaN does not, and index 0 stays if all are NaN.
const NOBODY: Candidate = Candidate(-3.4028234e38, 0xffffffffu);

// The larger value; of equal values the lower index. A NaN compares false and never wins.
fn better(a: Candidate, b: Candidate) -> Candidate {
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) { return b; }
    return a;
}

// Ends the step: the choice becomes the next token unless the host gave that one, and the single
// counter of tokens seen advances.
fn end_step(best: Candidate) {
    let token = select(best.index, 0u, best.index == 0xffffffffu);
    let next = state[POSITION] + 1u;
    state[CHOICE] = token;
    if (next >= state[PROMPT_LEN] && next < arrayLength(&tokens)) { tokens[next] = token; }
    // The bound matters only to a benchmark, which repeats this and so would leave `tokens`.
    state[POSITION] = min(next, max(arrayLength(&tokens), 1u) - 1u);
}
