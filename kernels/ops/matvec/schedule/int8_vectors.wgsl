// Four SoA rows to LANES lanes, times up to eight quantised vectors. A workgroup holds X_VECTORS of
// them; with more, neighbouring workgroups have the same rows and the next vectors.
// import: grid, matvec/prologue/int8_digits, matvec/rows/soa, matvec/rows/soa_neighbours
// import: matvec/schedule/vector_sums, reduce/four
// import: matvec/epilogue/rows_of_y
// requires: override N_VECTORS: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override X_VECTORS: u32 = 1u; // of them in memory
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
// Workgroups at most. Each quantises its vectors, so with many rows it takes more than one grid-stride
// iteration.
override GROUPS: u32 = 264u;
const EACH: u32 = 4u;
const PAIRED: bool = false;
override TEAMS: u32 = WG / LANES;
override TURN_ROWS: u32 = EACH * TEAMS;
override SETS: u32 = (ROWS + TURN_ROWS - 1u) / TURN_ROWS;
override PASSES: u32 = (N_VECTORS + X_VECTORS - 1u) / X_VECTORS; // over the vectors
override MOST_SETS: u32 = max(GROUPS / PASSES, 1u);
override TURNS: u32 = (SETS + MOST_SETS - 1u) / MOST_SETS;
override GRID: u32 = (SETS + TURNS - 1u) / TURNS;

fn stored_row(row: u32) -> u32 { return row; }

fn codes_in(chunk: SoaChunk, first: u32, i: u32, c: u32) -> Codes {
    return codes_of(chunk, stream_chunk(row_after(first, i)) + c);
}

// Chunk c of four rows times one of the vectors in memory.
fn dot_rounded_vector(which: u32, c: u32, a: Codes, b: Codes, d: Codes, e: Codes) -> vec4<f32> {
    let v = load_rounded(which, c);
    return vec4<f32>(dot_rounded(a, v), dot_rounded(b, v), dot_rounded(d, v), dot_rounded(e, v));
}

fn add_rounded(rows: RowChunks, first: u32, c: u32) {
    let a = codes_in(rows.a, first, 0u, c);
    let b = codes_in(rows.b, first, 1u, c);
    let d = codes_in(rows.c, first, 2u, c);
    let e = codes_in(rows.d, first, 3u, c);
    sum0 += dot_rounded_vector(0u, c, a, b, d, e);
    if (X_VECTORS > 1u) { sum1 += dot_rounded_vector(1u, c, a, b, d, e); }
    if (X_VECTORS > 2u) { sum2 += dot_rounded_vector(2u, c, a, b, d, e); }
    if (X_VECTORS > 3u) { sum3 += dot_rounded_vector(3u, c, a, b, d, e); }
    if (X_VECTORS > 4u) { sum4 += dot_rounded_vector(4u, c, a, b, d, e); }
    if (X_VECTORS > 5u) { sum5 += dot_rounded_vector(5u, c, a, b, d, e); }
    if (X_VECTORS > 6u) { sum6 += dot_rounded_vector(6u, c, a, b, d, e); }
    if (X_VECTORS > 7u) { sum7 += dot_rounded_vector(7u, c, a, b, d, e); }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
) {
    let group = flat_index(workgroup, groups, GRID * PASSES);
    let first_vector = X_VECTORS * (group % PASSES);
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let lane = subgroup_lane % lanes;
    let team = subgroup * (sg / lanes) + subgroup_lane / lanes;
    let chunks = soa_row_chunks();
    let rounds = (chunks + lanes - 1u) / lanes;

    var row = EACH * (group / PASSES * TEAMS + team);
    var first = first_row(row);
    var now = load_row_chunks(first, min(lane, chunks - 1u));
    round_x(first_vector, subgroup, sg, subgroup_lane);
    workgroupBarrier();

    for (var turn = 1u; turn <= TURNS; turn++) {
        let next_row = row + GRID * TURN_ROWS;
        let next_first = first_row(next_row);
        clear_vector_sums();
        var c = lane;
        for (var round = 1u; round <= rounds; round++) {
            // Under way while a chunk of each row is used: the rows' next, or the next rows' first.
            let more = round < rounds;
            var next = now;
            if (more || turn < TURNS) {
                let at = select(lane, c + lanes, more);
                next = load_row_chunks(select(next_first, first, more), min(at, chunks - 1u));
            }
            if (c < chunks) { add_rounded(now, first, c); }
            now = next;
            c += lanes;
        }
        let mine = first + lane / (lanes / 4u);
        let keeps = team < TEAMS && lane % (lanes / 4u) == 0u && mine >= row && mine < ROWS;
        for (var i = 0u; i < X_VECTORS; i++) {
            let one = sum_four(vector_sum(i), subgroup_lane, lanes);
            let at = y_at(first_vector + i, mine);
            if (keeps && first_vector + i < N_VECTORS) { store_y(at, one, old_y(at)); }
        }
        row = next_row;
        first = next_first;
    }
}
