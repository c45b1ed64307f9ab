// The row of a token in an embedding table or in a part of one.
// requires: override N_TOKENS: u32
// requires: var state, tokens: array<u32>
override VOCAB: u32; // rows
override PART: u32; // which part of the table
override FIRST_ROW: u32; // token of a part's row 0
override TOKENS_OF: u32 = OF_ONE;

// The row of token i: of those from the current one on, or of the current ones of N_TOKENS sequences, whose
// tokens of one position are neighbours. VOCAB and above: in another part. The whole table has no other:
// a token beyond it reads the last row; the host rejects such tokens before they get here.
fn table_row(i: u32) -> u32 {
    let token = tokens[state[POSITION] * select(1u, N_TOKENS, TOKENS_OF == OF_EACH) + i];
    if (PART == TABLE_PART) { return token - FIRST_ROW; }
    return min(token, VOCAB - 1u);
}
