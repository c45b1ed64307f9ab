// LANES invocations, a thread group, share TILE_ROWS rows; a workgroup has TEAMS of them. LANES need be neither
// a power of two nor whole subgroups: shuffle segments of UNIT lanes, the largest power of two that divides
// LANES and fits a subgroup, add up by shuffles, then one barrier and the segments of each row.
// import: grid, matvec/schedule/share
// requires: type Partial
// requires: override BETA, Y_OFFSET, ROWS: u32
// requires: fn epilogue(total: Partial) -> f32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override LANES: u32 = 32u;
override TEAMS: u32 = 4u;
override TILE_ROWS: u32 = 1u; // rows a thread group works on at a time, 1..=4
override WG: u32 = LANES * TEAMS;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
// Subgroups have at least four lanes.
override UNIT: u32 = min(LANES & (~LANES + 1u), select(SG, 4u, SG == 0u));
override SLOTS: u32 = TILE_ROWS * WG / UNIT;

var<workgroup> team_slots: array<Partial, SLOTS>;

// An invocation's place: with several thread groups next to each other within a subgroup, as shuffles
// need it. WG is then a multiple of the subgroup size.
struct TeamLane { first: u32, at: u32, lid: u32, subgroup: u32, size: u32, lane: u32 }

fn take_place(
    workgroup: vec3<u32>, groups: vec3<u32>, lid: u32,
    subgroup: u32, subgroup_size: u32, lane: u32,
) -> TeamLane {
    let size = select(SG, subgroup_size, SG == 0u);
    let at = select(subgroup * size + lane, lid, TEAMS == 1u);
    let first = TEAMS * TILE_ROWS * flat_index(workgroup, groups, (ROWS - 1u) / (TEAMS * TILE_ROWS) + 1u);
    return TeamLane(first, at, lid, subgroup, size, lane);
}

// Row r of the place's thread group. Rows past the end repeat the last: loads stay inside, and what they
// make is dropped.
fn team_row(p: TeamLane, r: u32) -> u32 {
    let row = p.first + p.at / LANES * TILE_ROWS + r;
    if (ROWS % (TEAMS * TILE_ROWS) == 0u) { return row; }
    return min(row, ROWS - 1u);
}

fn unit_sum(v: Partial) -> Partial {
    if (TEAMS == 1u || UNIT == SG) { return subgroupAdd(v); }
    var sum = v;
    for (var step = UNIT / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    return sum;
}

// Sums of subgroups or shuffle segments that make a row.
fn row_parts(p: TeamLane) -> u32 {
    if (TEAMS > 1u) { return LANES / UNIT; }
    return (LANES + p.size - 1u) / p.size;
}

// Whether a thread group is one shuffle segment, whose first lane then stores all its rows.
fn is_unit() -> bool { return select(LANES == UNIT, SG > 0u && LANES <= SG, TEAMS == 1u); }

// What y holds where this invocation will store.
fn old_rows(p: TeamLane) -> vec4<f32> {
    var y_before = vec4<f32>(0.0);
    if (BETA == BETA_0) { return y_before; }
    if (!is_unit()) {
        if (p.lid < TEAMS * TILE_ROWS) { y_before.x = old_y(Y_OFFSET + min(p.first + p.lid, ROWS - 1u)); }
    } else if (p.at % LANES == 0u) {
        for (var r = 0u; r < TILE_ROWS; r++) { y_before[r] = old_y(Y_OFFSET + team_row(p, r)); }
    }
    return y_before;
}

// Adds up a thread group's sums and stores its rows.
fn store_rows(p: TeamLane, sums: ptr<function, array<Partial, 4>>, y_before: vec4<f32>) {
    for (var r = 0u; r < TILE_ROWS; r++) { (*sums)[r] = unit_sum((*sums)[r]); }
    if (is_unit()) {
        if (p.at % LANES == 0u) {
            for (var r = 0u; r < TILE_ROWS; r++) {
                let row = p.first + p.at / LANES * TILE_ROWS + r;
                if (row < ROWS) { store_y(Y_OFFSET + row, epilogue((*sums)[r]), y_before[r]); }
            }
        }
        return;
    }
    let units = WG / UNIT;
    let unit = select(p.at / UNIT, p.subgroup, TEAMS == 1u);
    if (select(p.at % UNIT, p.lane, TEAMS == 1u) == 0u) {
        for (var r = 0u; r < TILE_ROWS; r++) { team_slots[r * units + unit] = (*sums)[r]; }
    }
    workgroupBarrier();
    let row = p.first + p.lid;
    if (p.lid < TEAMS * TILE_ROWS && row < ROWS) {
        let begin = p.lid % TILE_ROWS * units + p.lid / TILE_ROWS * (LANES / UNIT);
        var total = Partial();
        for (var i = 0u; i < row_parts(p); i++) { total += team_slots[begin + i]; }
        store_y(Y_OFFSET + row, epilogue(total), y_before.x);
    }
}

// One row a thread group.
fn split_row(p: TeamLane) {
    let y_before = old_rows(p);
    var sums: array<Partial, 4>;
    sums[0] = share(team_row(p, 0u), p.at % LANES, LANES);
    store_rows(p, &sums, y_before);
}
