// What the stages of split decode attention agree on.
// requires: override KV_SIZE: u32
// requires: override KV_HEADS: u32
// requires: override SPLITS: u32
// requires: fn teams() -> u32
override SEQUENCES: u32 = 1u; // whose heads lie one after the other
const MOST_SCORES: u32 = 64u; // Q_PER_KV * in_flight()
const MOST_HEADS: u32 = 8u;

// Splits of a KV head. The bounds are those of the scratch memory (attention_decode.rs).
fn splits() -> u32 {
    let heads = SEQUENCES * KV_HEADS;
    return min(SPLITS, min((511u + heads) / heads, (KV_SIZE + 7u) / 8u));
}

// Splits that have work; the others leave at once and nobody looks for their results.
fn used_splits(n: u32) -> u32 { return min(splits(), (n + teams() - 1u) / teams()); }
