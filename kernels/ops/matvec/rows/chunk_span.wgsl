// Chunks of a row by whole spans of lanes: begin..begin+lanes is one chunk a lane. Conditions on
// `begin` are the same in all lanes, and constants where the number of lanes is.
// import: matvec/rows/dense16
// requires: var weights: array<vec4<u32>>

// The lane's chunk, or the row's last where the row ends within the span: loads need no branch.
fn span_chunk(begin: u32, lane: u32) -> u32 { return min(begin + lane, row_chunks() - 1u); }

// Sixteen bytes of the row that begins at chunk `base`.
fn load_span_chunk(base: u32, begin: u32, lane: u32) -> vec4<u32> {
    if (begin >= row_chunks()) { return vec4<u32>(0u); }
    return weights[base + span_chunk(begin, lane)];
}

// Spans of a round: at most `most`, and rounds as even as they go.
fn spans_a_round(lanes: u32, most: u32) -> u32 {
    let spans = (row_chunks() + lanes - 1u) / lanes;
    let rounds = (spans + most - 1u) / most;
    return (spans + rounds - 1u) / rounds;
}
