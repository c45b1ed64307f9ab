// Slots that are filled.
// requires: override KV_SIZE: u32
// requires: var state: array<u32>

fn attended() -> u32 { return min(state[POSITION] + 1u, KV_SIZE); }
