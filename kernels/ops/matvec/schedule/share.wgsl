// One lane's slice of a row: chunks lane, lane + lanes, lane + 2 lanes and so on. All loads of a
// round are issued before the first use, so a lane waits for memory once a round; with `lanes` a
// constant all conditions here are, and the code is straight.
// requires: type Chunk, Partial, RowX
// requires: fn dot_row_chunk(w: Chunk, v: RowX) -> Partial
// requires: fn load_chunk(row: u32, c: u32) -> Chunk
// requires: fn row_chunks() -> u32
// requires: fn row_x(c: u32) -> RowX
override UNROLL: u32 = 9u; // most loads in flight a lane, 1..=9

// chunks begin..begin + lanes of a row, one of which is the lane's own.
struct Span { begin: u32, lane: u32, lanes: u32 }

// Loads of a round: no more than `most`, and rounds as even as they go.
fn loads_a_round(lanes: u32, most: u32) -> u32 {
    let trips = (row_chunks() + lanes - 1u) / lanes;
    let rounds = (trips + most - 1u) / most;
    return (trips + rounds - 1u) / rounds;
}

fn is_whole(s: Span) -> bool { return s.begin + s.lanes <= row_chunks(); }

// The lane's chunk, or the row's last where it has none: a load that never leaves the row needs no
// branch.
fn own_chunk(s: Span) -> u32 {
    if (is_whole(s)) { return s.begin + s.lane; }
    return min(s.begin + s.lane, row_chunks() - 1u);
}

fn fetch(row: u32, s: Span) -> Chunk {
    if (s.begin >= row_chunks()) { return Chunk(); }
    return load_chunk(row, own_chunk(s));
}

// What a fetched chunk adds, nothing where the lane has none of its own.
fn counted(s: Span, v: Partial) -> Partial {
    if (is_whole(s)) { return v; }
    return select(Partial(), v, s.begin + s.lane < row_chunks());
}

fn dot_span(w: Chunk, s: Span) -> Partial {
    if (s.begin >= row_chunks()) { return Partial(); }
    return counted(s, dot_row_chunk(w, row_x(own_chunk(s))));
}

// Span i of a round, past the row's end where the round has fewer.
fn span(first: u32, lane: u32, lanes: u32, i: u32) -> Span {
    if (i >= loads_a_round(lanes, UNROLL)) { return Span(row_chunks(), lane, lanes); }
    return Span(first + i * lanes, lane, lanes);
}

// Named values and not an array: every driver keeps them in registers.
fn share(row: u32, lane: u32, lanes: u32) -> Partial {
    var sum = Partial();
    for (var first = 0u; first < row_chunks(); first += loads_a_round(lanes, UNROLL) * lanes) {
        let s0 = span(first, lane, lanes, 0u);
        let s1 = span(first, lane, lanes, 1u);
        let s2 = span(first, lane, lanes, 2u);
        let s3 = span(first, lane, lanes, 3u);
        let s4 = span(first, lane, lanes, 4u);
        let s5 = span(first, lane, lanes, 5u);
        let s6 = span(first, lane, lanes, 6u);
        let s7 = span(first, lane, lanes, 7u);
        let s8 = span(first, lane, lanes, 8u);
        let w0 = fetch(row, s0);
        let w1 = fetch(row, s1);
        let w2 = fetch(row, s2);
        let w3 = fetch(row, s3);
        let w4 = fetch(row, s4);
        let w5 = fetch(row, s5);
        let w6 = fetch(row, s6);
        let w7 = fetch(row, s7);
        let w8 = fetch(row, s8);
        let a = dot_span(w0, s0) + dot_span(w1, s1) + dot_span(w2, s2);
        let b = dot_span(w3, s3) + dot_span(w4, s4) + dot_span(w5, s5);
        let c = dot_span(w6, s6) + dot_span(w7, s7) + dot_span(w8, s8);
        sum += a + b + c;
    }
    return sum;
}
