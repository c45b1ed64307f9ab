// What the stages of split decode attention agree on.
// import: attention/parts/attended
// requires: override SPLITS: u32
// requires: fn thread_groups() -> u32
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // whole chunks
override KV_SIZE: u32;
override SEQUENCES: u32 = 1u; // whose heads lie one after the other
override HEADS: u32 = Q_PER_KV; // query heads that a workgroup takes of its KV head's
const MOST_SCORES: u32 = 64u; // HEADS * in_flight()
const MOST_HEADS: u32 = 8u;

// What a workgroup attends with, HEADS query heads of a KV head from `first` on, and to, the slots of a
// split.
struct SplitPart { kv_head: u32, first: u32, split: u32 }

fn split_part(workgroup: u32) -> SplitPart {
    let parts = Q_PER_KV / HEADS;
    let at = workgroup / splits();
    return SplitPart(at / parts, at % parts * HEADS, workgroup % splits());
}

// Splits of a KV head. The bounds are those of the scratch memory (attention/mod.rs).
fn splits() -> u32 {
    let heads = SEQUENCES * KV_HEADS;
    return min(SPLITS, min((511u + heads) / heads, (KV_SIZE + 7u) / 8u));
}

// Splits that have work; the others leave at once and nobody looks for their results.
fn used_splits(n: u32) -> u32 { return min(splits(), (n + thread_groups() - 1u) / thread_groups()); }

// A row of the second stage is a query head.
fn combined_rows() -> u32 { return SEQUENCES * KV_HEADS * Q_PER_KV; }

fn splits_to_combine(row: u32) -> u32 { return used_splits(attended()); }

fn row_output(row: u32) -> u32 { return row * (HEAD_DIM / 4u); }

// Where the partial results of a row lie: [KV head][split][head of the group].
fn partial_of(row: u32, split: u32) -> u32 {
    return ((row / Q_PER_KV) * splits() + split) * Q_PER_KV + row % Q_PER_KV;
}
