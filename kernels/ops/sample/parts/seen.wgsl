// Which of up to 1024 neighbouring tokens the penalty looks at.
// import: sample/parts/sampling
// requires: override WG: u32
// requires: var state, tokens: array<u32>
var<workgroup> seen_bits: array<atomic<u32>, 32>;

// Marks what was seen of tokens first..first+1024.
fn mark_seen(lid: u32, first: u32) {
    if (REPEAT_PENALTY == 1.0) { return; }
    for (var w = lid; w < 32u; w += WG) { atomicStore(&seen_bits[w], 0u); }
    workgroupBarrier();
    for (var at = window_start() + lid; at <= state[POSITION]; at += WG) {
        let i = tokens[at] - first;
        if (i < 1024u) { atomicOr(&seen_bits[i / 32u], 1u << (i % 32u)); }
    }
    workgroupBarrier();
}

fn was_seen(i: u32) -> bool {
    if (REPEAT_PENALTY == 1.0) { return false; }
    return ((atomicLoad(&seen_bits[i / 32u]) >> (i % 32u)) & 1u) == 1u;
}
