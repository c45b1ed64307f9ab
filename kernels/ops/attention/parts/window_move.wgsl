// Which unit of a ring an invocation of kv_window copies to or from which unit of a chunk's rows.
// requires: var state: array<u32>
override WINDOW_MOVE: u32;
override N_TOKENS: u32;
override KV_HEADS: u32;
override KV_SIZE: u32;
override HEAD_DIM: u32;

struct Move { any: bool, slot: u32, row: u32 }

// Unit i of those that may move, of `units` a row.
fn window_move(i: u32, units: u32) -> Move {
    let position = state[POSITION];
    let tokens = select(N_TOKENS, KV_SIZE, WINDOW_MOVE == WINDOW_TO_ROWS);
    let head = i / (tokens * units);
    let token = i / units % tokens;
    let unit = i % units;
    var place = position + token; // of the sequence
    var row = KV_SIZE + token;
    var any = head < KV_HEADS;
    if (WINDOW_MOVE == WINDOW_TO_ROWS) {
        any = any && token + position >= KV_SIZE;
        place = position + token - KV_SIZE;
        row = token;
    } else {
        let count = min(max(state[PROMPT_LEN], position) - position, N_TOKENS);
        // Of the tokens of one slot the last one stays.
        any = any && token < count && token + KV_SIZE >= count;
    }
    let slot = (head * KV_SIZE + place % KV_SIZE) * units + unit;
    return Move(any, slot, (head * (KV_SIZE + N_TOKENS) + row) * units + unit);
}
