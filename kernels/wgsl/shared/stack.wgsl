// RUN rows a team: what is made of x serves all of them. Over a row's prelude, share and team.

// Chunks a lane holds. After unrolling by constants they are registers.
const HELD: u32 = 16u;

fn split_k(p: Place) {
    let before = held_rows(p);
    var sums: array<Partial, 4>;
    var held: array<Chunk, HELD>;
    let lane = p.at % LANES;
    let deep = depth(LANES, min(UNROLL, HELD / RUN));
    for (var first = 0u; first < row_chunks(); first += deep * LANES) {
        for (var i = 0u; i < deep; i++) {
            let s = Span(first + i * LANES, lane, LANES);
            for (var r = 0u; r < RUN; r++) { held[i * RUN + r] = fetch(team_row(p, r), s); }
        }
        for (var i = 0u; i < deep; i++) {
            let s = Span(first + i * LANES, lane, LANES);
            if (s.begin < row_chunks()) {
                let v = row_x(own_chunk(s));
                for (var r = 0u; r < RUN; r++) {
                    sums[r] += counted(s, weigh(held[i * RUN + r], v));
                }
            }
        }
    }
    store_rows(p, &sums, before);
}
