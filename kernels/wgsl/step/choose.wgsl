// Candidates of an argmax, and the end of a step.
// requires: var state, tokens: array<u32>
struct Candidate { value: f32, index: u32 }

// No logit yet: any number beats it.
const NOBODY: Candidate = Candidate(-3.4028234e38, 0xffffffffu);

// Value of a logit that is not finite, which wins; its choice is no token.
const NOT_FINITE: f32 = 3.4028234e38;
// The choice where some logit is not finite: beyond every vocabulary.
const NO_TOKEN: u32 = 0xffffffffu;

// The bits decide: compilers may assume that floats are finite.
fn is_not_finite(v: f32) -> bool { return (bitcast<u32>(v) & 0x7f800000u) == 0x7f800000u; }

// The candidate that a logit is.
fn candidate(logit: f32, index: u32) -> Candidate {
    return Candidate(select(logit, NOT_FINITE, is_not_finite(logit)), index);
}

// The larger value; of equal values the lower index.
fn better(a: Candidate, b: Candidate) -> Candidate {
    if (b.value > a.value || (b.value == a.value && b.index < a.index)) { return b; }
    return a;
}

// Sequences that end a step together: each has a row of state, and of every position a token.
override SEQUENCES: u32 = 1u;

// Ends the step of the only sequence.
fn end_step(best: Candidate) { end_step_of(0u, best); }

// Ends the step of a sequence: the choice becomes its next token unless the host gave that one, and
// its counter of tokens seen advances. NO_TOKEN is stored like any other, and the host sees it.
fn end_step_of(sequence: u32, best: Candidate) {
    let row = sequence * STATE_WORDS;
    let token = select(best.index, NO_TOKEN, best.value >= NOT_FINITE);
    let positions = arrayLength(&tokens) / SEQUENCES;
    let next = state[row + POSITION] + 1u;
    state[row + CHOICE] = token;
    if (next >= state[row + PROMPT_LEN] && next < positions) { tokens[next * SEQUENCES + sequence] = token; }
    // The bound matters only to a benchmark, which repeats this and so would leave `tokens`.
    state[row + POSITION] = min(next, max(positions, 1u) - 1u);
}
