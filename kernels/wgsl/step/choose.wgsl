// Candidates of an argmax, and the end of a step.
// requires: var state, tokens: array<u32>
struct Candidate { value: f32, index: u32 }

// No logit yet: any finite number beats it, NaN and -inf do not, and index 0 is chosen where there is
// nothing else.
const NOBODY: Candidate = Candidate(-3.4028234e38, 0xffffffffu);

// The larger value; of equal values the lower index. A NaN compares false and never wins.
fn better(a: Candidate, b: Candidate) -> Candidate {
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) { return b; }
    return a;
}

// Sequences that end a step together: each has a row of state, and of every position a token.
override SEQUENCES: u32 = 1u;

// Ends the step of the only sequence.
fn end_step(best: Candidate) { end_step_of(0u, best); }

// Ends the step of a sequence: the choice becomes its next token unless the host gave that one, and
// its counter of tokens seen advances.
fn end_step_of(sequence: u32, best: Candidate) {
    let row = sequence * STATE_WORDS;
    let token = select(best.index, 0u, best.index == 0xffffffffu);
    let positions = arrayLength(&tokens) / SEQUENCES;
    let next = state[row + POSITION] + 1u;
    state[row + CHOICE] = token;
    if (next >= state[row + PROMPT_LEN] && next < positions) { tokens[next * SEQUENCES + sequence] = token; }
    // The bound matters only to a benchmark, which repeats this and so would leave `tokens`.
    state[row + POSITION] = min(next, max(positions, 1u) - 1u);
}
