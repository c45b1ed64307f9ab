// Which logits the penalty looks at, of those that a workgroup reads side by side.
// import: sample/parts/sampling
// requires: override WG: u32
// requires: var state, tokens: array<u32>
var<workgroup> lane_seen: array<atomic<u32>, WG>;

// For each invocation a bit for each logit of vector first + lid.
fn seen_by_lane(lid: u32, first: u32) -> u32 {
    if (REPEAT_PENALTY == 1.0) { return 0u; }
    workgroupBarrier();
    atomicStore(&lane_seen[lid], 0u);
    workgroupBarrier();
    for (var at = window_start() + lid; at <= state[POSITION]; at += WG) {
        let lane = tokens[at] / 4u - first;
        if (lane < WG) { atomicOr(&lane_seen[lane], 1u << (tokens[at] % 4u)); }
    }
    workgroupBarrier();
    return atomicLoad(&lane_seen[lid]);
}
