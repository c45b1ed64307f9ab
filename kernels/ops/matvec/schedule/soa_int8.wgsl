// SoA rows times quantised activations, EACH rows to a thread group of SPLIT times LANES lanes.
//
//   ready_x                        makes x once what came before is there
//   factor_of(size)                a factor on every product, once x is quantised
//   old_of_row(row)                what store_product will want of the row, loaded ahead
//   store_product(product, lanes)  takes a product, in uniform control flow
// import: matvec/prologue/int8_digits, matvec/rows/soa, matvec/rows/soa_neighbours, reduce/four
// import: matvec/schedule/product, persistent/await_input
// requires: fn factor_of(size: u32) -> f32
// requires: fn old_of_row(row: u32) -> f32
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
// requires: fn store_product(product: Product, lanes: u32)
// requires: fn stored_row(row: u32) -> u32
const N_VECTORS: u32 = 1u;
const X_VECTORS: u32 = 1u;
override WG: u32 = 256u;
override EACH: u32 = 4u; // rows to LANES lanes: 1, 2 or 4
override LANES: u32 = 32u; // a power of two from 4 on
override SPLIT: u32 = 1u; // groups of lanes that share the columns of the same rows
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
// Workgroups at most. Each rounds all of x, so with many rows it takes more than one grid-stride iteration.
override GROUPS: u32 = 264u;
override PARTS: u32 = min(SPLIT, WG / LANES); // of a row
override TEAMS: u32 = WG / (LANES * PARTS);
override TURN_ROWS: u32 = EACH * TEAMS;
override SETS: u32 = (ROWS + TURN_ROWS - 1u) / TURN_ROWS;
override TURNS: u32 = (SETS + GROUPS - 1u) / GROUPS;
override GRID: u32 = (SETS + TURNS - 1u) / TURNS;

// What the parts of a workgroup's rows add up to.
override SHARES: u32 = select(1u, EACH * TEAMS * PARTS, PARTS > 1u);
var<workgroup> shares: array<f32, SHARES>;

fn dot_row(chunk: SoaChunk, first: u32, i: u32, c: u32, v: Rounded) -> f32 {
    return dot_rounded(codes_of(chunk, stream_chunk(stored_row(row_after(first, i))) + c), v);
}

// All rows of workgroup `group`.
fn walk_rows(group: u32, subgroup: u32, size: u32, subgroup_lane: u32) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let lane = subgroup_lane % lanes;
    let share = subgroup * (sg / lanes) + subgroup_lane / lanes;
    let slot = share / PARTS;
    let chunks = soa_row_chunks();
    let step = lanes * PARTS;
    let rounds = (chunks + step - 1u) / step;
    let begin = share % PARTS * lanes + lane;

    var row = EACH * (group * TEAMS + slot);
    var first = first_row(row);
    var now = load_row_chunks(first, min(begin, chunks - 1u));
    await_input();
    ready_x(subgroup * sg + subgroup_lane, sg, group, GRID);
    // Of EACH rows this lane will be left with one. No condition: where old_of_row is a constant nothing of
    // this is alive through the loop below, whose registers decide how many workgroups fit.
    var y_before = old_of_row(min(first + lane / (lanes / 4u), ROWS - 1u));
    round_x(0u, subgroup, sg, subgroup_lane);
    workgroupBarrier();
    let factor = factor_of(sg);

    for (var turn = 1u; turn <= TURNS; turn++) {
        let next_row = row + GRID * TURN_ROWS;
        let next_first = first_row(next_row);
        var sum = vec4<f32>(0.0);
        var c = begin;
        for (var round = 1u; round <= rounds; round++) {
            // Under way while a chunk of each row is used: the rows' next, or the next rows' first.
            let more = round < rounds;
            var next = now;
            if (more || turn < TURNS) {
                let at = select(begin, c + step, more);
                next = load_row_chunks(select(next_first, first, more), min(at, chunks - 1u));
            }
            if (c < chunks) {
                let v = load_rounded(0u, c);
                sum.x += dot_row(now.a, first, 0u, c, v);
                if (EACH > 1u) { sum.y += dot_row(now.b, first, 1u, c, v); }
                if (EACH > 2u) {
                    sum.z += dot_row(now.c, first, 2u, c, v);
                    sum.w += dot_row(now.d, first, 3u, c, v);
                }
            }
            now = next;
            c += step;
        }
        let which = lane / (lanes / 4u);
        let holds = slot < TEAMS && lane % (lanes / 4u) == 0u && which < EACH;
        var value = sum_four(sum, subgroup_lane, lanes);
        if (PARTS > 1u) {
            if (turn > 1u) { workgroupBarrier(); }
            if (holds) { shares[share * EACH + which] = value; }
            workgroupBarrier();
            value = 0.0;
            if (holds) {
                for (var i = 0u; i < PARTS; i++) { value += shares[(slot * PARTS + i) * EACH + which]; }
            }
        }
        let mine = first + which;
        let live = holds && share % PARTS == 0u && mine >= row && mine < ROWS;
        let at = (turn - 1u) * TURN_ROWS + EACH * slot + which;
        store_product(Product(factor * value, y_before, mine, at, live), lanes);
        row = next_row;
        first = next_first;
        if (turn < TURNS) { y_before = old_of_row(min(first + which, ROWS - 1u)); }
    }
}
