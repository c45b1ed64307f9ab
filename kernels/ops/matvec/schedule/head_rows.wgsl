// SoA rows of a head times x, many a workgroup. One lane calls push_logit for each row.
// import: grid, matvec/prologue/x_tile, matvec/rows/soa, reduce/four
// requires: fn begin_rows(lid: u32)
// requires: fn end_rows(lid: u32, group: u32)
// requires: fn push_logit(row: u32, at: u32, logit: f32)
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 256u;
override LANES: u32 = 32u; // lanes to four rows at a time, a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

// A chunk of each of four neighbouring rows.
struct Four { a: SoaChunk, b: SoaChunk, c: SoaChunk, d: SoaChunk }

// Rows past the end repeat the last one, chunks the row's last: loads stay inside.
fn load_four(row: u32, c: u32) -> Four {
    let last = ROWS - 1u;
    let i = min(c, soa_row_chunks() - 1u);
    return Four(
        load_soa_chunk(stream_base(min(row, last)), i),
        load_soa_chunk(stream_base(min(row + 1u, last)), i),
        load_soa_chunk(stream_base(min(row + 2u, last)), i),
        load_soa_chunk(stream_base(min(row + 3u, last)), i),
    );
}

fn dot_four(w: Four, c: u32, v: SoaX) -> vec4<f32> {
    return vec4<f32>(
        dot_soa_chunk(w.a, c, v), dot_soa_chunk(w.b, c, v), dot_soa_chunk(w.c, c, v), dot_soa_chunk(w.d, c, v),
    );
}

// All rows of workgroup `group`, by all its invocations. What a lane needs next, be it of these rows
// or of the next four, is on its way while it works; x is staged once where it fits.
fn weigh_rows(lid: u32, group: u32, subgroup: u32, size: u32, lane: u32) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let team = subgroup * (sg / lanes) + lane / lanes;
    let step = 4u * (WG / LANES);
    let mine = lane % lanes;
    let tiled = TILE < soa_row_chunks();
    var row = group * ROWS_PER_WG + 4u * team;
    var w = load_four(row, mine);
    for (var r = 0u; r < ROWS_PER_WG; r += step) {
        let more = r + step < ROWS_PER_WG;
        var sum = vec4<f32>(0.0);
        for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
            let end = min(soa_row_chunks(), tile + TILE);
            if (tiled || r == 0u) { stage_x_tile(lid, 0u, tile); }
            for (var first = tile; first < end; first += lanes) {
                let c = first + mine;
                var n = w;
                if (first + lanes < end) {
                    n = load_four(row, c + lanes);
                } else if (end < soa_row_chunks()) {
                    n = load_four(row, end + mine);
                } else if (more) {
                    n = load_four(row + step, mine);
                }
                if (c < end) { sum += dot_four(w, c, load_x_tile(c - tile)); }
                w = n;
            }
            if (tiled) { workgroupBarrier(); }
        }
        let logit = sum_four(sum, lane, lanes);
        let which = mine / (lanes / 4u);
        let within = r + 4u * team + which < ROWS_PER_WG && 4u * team < step;
        if (within && mine % (lanes / 4u) == 0u && row + which < ROWS) {
            push_logit(row + which, r + 4u * team + which, logit);
        }
        row += step;
    }
}

fn group_rows() -> u32 { return ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let group = group_index(workgroup, grid);
    begin_rows(lid);
    weigh_rows(lid, group, subgroup, size, lane);
    end_rows(lid, group);
}
