// TILE_ROWS rows a thread group: what is made of x serves all of them.
// import: matvec/schedule/share, matvec/schedule/team
// requires: type Chunk, Partial, RowX
// requires: fn dot_row_chunk(w: Chunk, v: RowX) -> Partial
// requires: fn row_chunks() -> u32
// requires: fn row_x(c: u32) -> RowX

// Chunks a lane holds. After unrolling by constants they are registers.
const MOST_CHUNKS: u32 = 16u;

fn split_k(p: TeamLane) {
    let before = old_rows(p);
    var sums: array<Partial, 4>;
    var chunks: array<Chunk, MOST_CHUNKS>;
    let lane = p.at % LANES;
    let deep = loads_a_round(LANES, min(UNROLL, MOST_CHUNKS / TILE_ROWS));
    for (var first = 0u; first < row_chunks(); first += deep * LANES) {
        for (var i = 0u; i < deep; i++) {
            let s = Span(first + i * LANES, lane, LANES);
            for (var r = 0u; r < TILE_ROWS; r++) { chunks[i * TILE_ROWS + r] = fetch(team_row(p, r), s); }
        }
        for (var i = 0u; i < deep; i++) {
            let s = Span(first + i * LANES, lane, LANES);
            if (s.begin < row_chunks()) {
                let v = row_x(own_chunk(s));
                for (var r = 0u; r < TILE_ROWS; r++) {
                    sums[r] += counted(s, dot_row_chunk(chunks[i * TILE_ROWS + r], v));
                }
            }
        }
    }
    store_rows(p, &sums, before);
}
