// Slots that are filled.
fn attended() -> u32 { return min(state[POSITION] + 1u, CAPACITY); }
