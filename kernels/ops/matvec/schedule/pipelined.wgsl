// Few workgroups, each with GROUP_ROWS neighbouring rows and thread groups of LANES lanes. A lane keeps its
// chunk of x in registers and multiplies TILE_ROWS rows at a time with it, while the next TILE_ROWS rows' chunks are
// loaded. Sums of TILE_ROWS rows are added by halves among UNIT lanes, then in workgroup memory over the units of a
// thread group, once, at the end.
//
//   gain_of(c)           what chunk c of x will be multiplied with, known before x is
//   ready_x              makes x once what came before is there, for which all invocations wait
//   tile_part(c, gain)  what chunk c of a row meets, and its squares where has_norm()
// import: grid, matvec/prologue/dot_chunk, matvec/prologue/pipelined, matvec/rows/dense16
// import: matvec/schedule/product, reduce/halves, persistent/await_input
// requires: const PAIRED: bool
// requires: fn has_norm() -> bool
// requires: fn old_of_row(row: u32) -> f32
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn store_product(product: Product, lanes: u32)
// requires: fn stored_row(row: u32) -> u32
override ROWS: u32;
override WG: u32 = 256u;
override LANES: u32 = 256u; // of a thread group: a power of two
override TILE_ROWS: u32 = 8u; // rows a thread group has at a time, 1..=16
override GROUPS: u32 = 264u; // workgroups at most
override SG: u32 = 32u; // the adapter's only subgroup size
// Two outputs of gate and up, a word of f16, are one workgroup's.
override WORD_ROWS: u32 = select(1u, 4u, PAIRED);
override GROUP_ROWS: u32 = ((ROWS - 1u) / GROUPS + WORD_ROWS) / WORD_ROWS * WORD_ROWS;
override GRID: u32 = (ROWS - 1u) / GROUP_ROWS + 1u;
override TEAMS: u32 = WG / LANES;
override TURN_ROWS: u32 = TEAMS * TILE_ROWS;
override TURNS: u32 = (GROUP_ROWS + TURN_ROWS - 1u) / TURN_ROWS;
override UNIT: u32 = min(LANES, SG);
override PARTS: u32 = LANES / UNIT; // of a row
override SWEPT_SUMS: u32 = PARTS * TURNS * TURN_ROWS;

var<workgroup> tile_sums: array<f32, SWEPT_SUMS>;
var<workgroup> tile_squares: array<f32, PARTS>;

// The workgroup's first row, and an invocation's place: `at` among its thread group's lanes.
struct Lane { first: u32, lid: u32, team: u32, at: u32 }

fn spans() -> u32 { return (row_chunks() + LANES - 1u) / LANES; }

fn is_even_tiling() -> bool { return row_chunks() % LANES == 0u; }

// Whether the place has a chunk of a span.
fn has_chunk(p: Lane, span: u32) -> bool { return is_even_tiling() || span * LANES + p.at < row_chunks(); }

// It, or the row's last.
fn span_chunk_of(p: Lane, span: u32) -> u32 {
    if (is_even_tiling()) { return span * LANES + p.at; }
    return min(span * LANES + p.at, row_chunks() - 1u);
}

// Row i of a thread group in iteration `turn`. Rows past the end repeat the workgroup's last: loads stay
// inside, and what they make is dropped.
fn tile_row(p: Lane, turn: u32, i: u32) -> u32 {
    let at = (turn * TEAMS + p.team) * TILE_ROWS + i;
    return stored_row(min(p.first + min(at, GROUP_ROWS - 1u), ROWS - 1u));
}

// A tile is one iteration's rows along one span. Tiles go through the workgroup's rows, and then along them.
fn tile_tiles() -> u32 { return TURNS * spans(); }

fn load_tile(chunks: ptr<function, array<Chunk, MOST_HALVED>>, p: Lane, tile: u32) {
    if (tile < tile_tiles()) {
        let c = span_chunk_of(p, tile / TURNS);
        for (var i = 0u; i < TILE_ROWS; i++) { (*chunks)[i] = load_chunk(tile_row(p, tile % TURNS, i), c); }
    }
}

// What a tile meets of x. Two tiles before it, the span was another where this is one of its first two.
fn load_part(part: ptr<function, TilePart>, p: Lane, tile: u32) {
    if ((tile < tile_tiles()) & (tile % TURNS < 2u)) {
        let c = span_chunk_of(p, tile / TURNS);
        *part = tile_part(c, gain_of(c));
    }
}

fn meet_tile(
    sums: ptr<function, array<f32, MOST_HALVED>>, chunks: ptr<function, array<Chunk, MOST_HALVED>>,
    part: XChunk, p: Lane, tile: u32,
) {
    let has = has_chunk(p, tile / TURNS);
    for (var i = 0u; i < TILE_ROWS; i++) {
        let sum = select(0.0, dot_chunk((*chunks)[i], part), has);
        // With one iteration, sums stay where they are until the row ends.
        (*sums)[i] = select(sum, (*sums)[i] + sum, TURNS == 1u);
    }
}

// The squares of a part, once for all iterations.
fn tile_squares_of(part: TilePart, p: Lane, tile: u32) -> f32 {
    return select(0.0, part.squares, (tile % TURNS == 0u) & has_chunk(p, tile / TURNS));
}

fn keep_sums(sums: ptr<function, array<f32, MOST_HALVED>>, mine: Share, p: Lane, tile: u32) {
    if ((TURNS > 1u) | (tile + 1u == tile_tiles())) {
        sum_halves(sums, TILE_ROWS, p.at, UNIT);
        let row = (p.at / UNIT * TURNS + tile % TURNS) * TURN_ROWS + p.team * TILE_ROWS + mine.first;
        let is_first = (TURNS == 1u) | (tile < TURNS);
        for (var i = 0u; i < values_left(TILE_ROWS, UNIT); i++) {
            if (i < mine.own) { tile_sums[row + i] = select(tile_sums[row + i], 0.0, is_first) + (*sums)[i]; }
        }
    }
}

// Two tiles are under way, each in registers of its own: to move one to the other's would wait for it.
fn multiply_tiles(p: Lane) {
    var even: array<Chunk, MOST_HALVED>;
    var odd: array<Chunk, MOST_HALVED>;
    load_tile(&even, p, 0u);
    load_tile(&odd, p, 1u);
    let gain = gain_of(span_chunk_of(p, 0u));
    await_input();
    ready_x(p.lid, SG, p.first / GROUP_ROWS, GRID);
    let y_before = old_of_row(min(p.first + p.lid, ROWS - 1u));
    let mine = share_of(TILE_ROWS, p.at, UNIT);
    var even_part = tile_part(span_chunk_of(p, 0u), gain);
    var odd_part = even_part;
    if (TURNS == 1u) { load_part(&odd_part, p, 1u); }
    var sums: array<f32, MOST_HALVED>;
    var squares = 0.0;
    for (var tile = 0u; tile < tile_tiles(); tile += 2u) {
        meet_tile(&sums, &even, even_part.v, p, tile);
        squares += tile_squares_of(even_part, p, tile);
        load_part(&even_part, p, tile + 2u);
        load_tile(&even, p, tile + 2u);
        keep_sums(&sums, mine, p, tile);
        if (tile + 1u < tile_tiles()) {
            meet_tile(&sums, &odd, odd_part.v, p, tile + 1u);
            squares += tile_squares_of(odd_part, p, tile + 1u);
            load_part(&odd_part, p, tile + 3u);
            load_tile(&odd, p, tile + 3u);
            keep_sums(&sums, mine, p, tile + 1u);
        }
    }
    if (has_norm()) {
        for (var far = UNIT / 2u; far > 0u; far /= 2u) { squares += subgroupShuffleXor(squares, far); }
        if (p.team == 0u && p.at % UNIT == 0u) { tile_squares[p.at / UNIT] = squares; }
    }
    workgroupBarrier();
    store_tiles(p, y_before);
}

// An invocation a row adds up its parts.
fn store_tiles(p: Lane, y_before: f32) {
    var factor = 1.0;
    if (has_norm()) {
        var squares = 0.0;
        for (var i = 0u; i < PARTS; i++) { squares += tile_squares[i]; }
        factor = rms_factor(squares);
    }
    var sum = 0.0;
    if (p.lid < GROUP_ROWS) {
        for (var i = 0u; i < PARTS; i++) { sum += tile_sums[i * TURNS * TURN_ROWS + p.lid]; }
    }
    let row = p.first + p.lid;
    store_product(Product(factor * sum, y_before, row, p.lid, p.lid < GROUP_ROWS && row < ROWS), 4u);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let first = flat_index(workgroup, groups, GRID) * GROUP_ROWS;
    let lid = subgroup * SG + lane;
    multiply_tiles(Lane(first, lid, lid / LANES, lid % LANES));
}
