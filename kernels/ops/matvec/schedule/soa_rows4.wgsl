// EACH (2 or 4) SoA rows to LANES lanes, which share each load of x; the next chunk of each row is
// in flight.
// import: grid, matvec/prologue/x_tile, matvec/rows/soa, reduce/four
// requires: override Y_OFFSET: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override EACH: u32 = 4u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let slots = WG / LANES;
    let row = EACH * (group_index(workgroup, groups) * slots + slot);
    // Rows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    let base0 = stream_base(min(row, last));
    let base1 = stream_base(min(row + 1u, last));
    let base2 = stream_base(min(row + 2u, last));
    let base3 = stream_base(min(row + 3u, last));
    let first0 = stream_chunk(min(row, last));
    let first1 = stream_chunk(min(row + 1u, last));
    let first2 = stream_chunk(min(row + 2u, last));
    let first3 = stream_chunk(min(row + 3u, last));

    var sum = vec4<f32>(0.0);
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        let end = min(soa_row_chunks(), tile + TILE);
        let rounds = (end - tile + lanes - 1u) / lanes;
        var c = tile + lane % lanes;
        let start = min(c, end - 1u);
        var w0 = load_soa_chunk(base0, first0 + start);
        var w1 = load_soa_chunk(base1, first1 + start);
        var w2: SoaChunk;
        var w3: SoaChunk;
        if (EACH > 2u) {
            w2 = load_soa_chunk(base2, first2 + start);
            w3 = load_soa_chunk(base3, first3 + start);
        }
        stage_x_tile(lid, 0u, tile);
        for (var round = 1u; round <= rounds; round++) {
            var n0 = w0;
            var n1 = w1;
            var n2 = w2;
            var n3 = w3;
            if (round < rounds) {
                let next = min(c + lanes, end - 1u);
                n0 = load_soa_chunk(base0, first0 + next);
                n1 = load_soa_chunk(base1, first1 + next);
                if (EACH > 2u) {
                    n2 = load_soa_chunk(base2, first2 + next);
                    n3 = load_soa_chunk(base3, first3 + next);
                }
            }
            if (c < end) {
                let v = load_x_tile(c - tile);
                sum.x += dot_soa_chunk(w0, first0 + c, v);
                sum.y += dot_soa_chunk(w1, first1 + c, v);
                if (EACH > 2u) {
                    sum.z += dot_soa_chunk(w2, first2 + c, v);
                    sum.w += dot_soa_chunk(w3, first3 + c, v);
                }
            }
            w0 = n0;
            w1 = n1;
            w2 = n2;
            w3 = n3;
            c += lanes;
        }
        workgroupBarrier();
    }
    let one = sum_four(sum, lane, lanes);
    let which = lane % lanes / (lanes / 4u);
    if (slot < slots && lane % (lanes / 4u) == 0u && which < EACH && row + which < ROWS) {
        store_y(Y_OFFSET + row + which, one, old_y(Y_OFFSET + row + which));
    }
}
