// The slot of a cache that a token's keys and values go to: token i from the current one on stands at the
// position + i, or, where BEFORE slots hold the tokens before the chunk, in slot BEFORE + i. A full cache and
// a ring are the same: slots wrap.
//
// With OF_EACH the tokens are the current ones of N_TOKENS sequences: all stand at the position, and the
// caches are (N_TOKENS, KV_HEADS, KV_SIZE, HEAD_DIM).
// requires: override KV_HEADS: u32
// requires: var state: array<u32>
override KV_SIZE: u32;
override N_TOKENS: u32 = 1u;
override BEFORE: u32 = 0u;
override TOKENS_OF: u32 = OF_ONE;

fn position_of(token: u32) -> u32 {
    return state[POSITION] + select(token, 0u, TOKENS_OF == OF_EACH);
}

// The head of the caches that a token's KV head goes to.
fn cache_head(token: u32, head: u32) -> u32 {
    return head + select(0u, token * KV_HEADS, TOKENS_OF == OF_EACH);
}

// KV_SIZE for a token that is not stored: beyond the prompt, where a chunk is not full, or overwritten by a
// later one of the same chunk.
fn slot_of(token: u32) -> u32 {
    let position = state[POSITION];
    if (TOKENS_OF == OF_EACH) { return position % KV_SIZE; }
    if (N_TOKENS > 1u) {
        let count = min(max(state[PROMPT_LEN], position) - position, N_TOKENS);
        if (token >= count || token + KV_SIZE < count) { return KV_SIZE; }
    }
    return (select(position, BEFORE, BEFORE > 0u) + token) % KV_SIZE;
}
