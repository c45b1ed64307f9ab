// Four SoA rows to LANES lanes, decoded once for up to eight vectors.
// import: grid, matvec/prologue/x_tile, matvec/rows/soa, matvec/schedule/column_sums, reduce/four
// import: matvec/epilogue/rows_of_y
// requires: override N_VECTORS: u32
// requires: override Y_OFFSET: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, held: f32)
override WG: u32 = 128u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

// Factor and summand that make weights of what `quants_at` returns, for word j of a chunk.
fn affine(s: vec2<f32>, j: u32) -> vec2<f32> {
    switch WEIGHT {
        case Q8_0: { return vec2<f32>(s.x, 0.0); }
        case Q6_K: { return vec2<f32>(select(s.x, s.y, j >= 2u), 0.0); }
        case Q4_0, Q5_0: { return vec2<f32>(s.x, -quant_offset() * s.x); }
        default: { return vec2<f32>(s.x, s.y - quant_offset() * s.x); }
    }
}

fn decoded(chunk: SoaChunk, s: vec2<f32>, j: u32) -> Quants {
    let q = quants_at(chunk, j);
    let f = affine(s, j);
    return Quants(q.low * f.x + f.y, q.high * f.x + f.y);
}

// Slot i of a column's tile and the next against eight weights of four rows.
fn dot_decoded(col: u32, i: u32, a: Quants, b: Quants, c: Quants, d: Quants) -> vec4<f32> {
    let v = x_tile[x_slot(col, 0u) + i];
    let low = vec4<f32>(dot(a.low, v), dot(b.low, v), dot(c.low, v), dot(d.low, v));
    if (WEIGHT == Q8_0) { return low; }
    let u = x_tile[x_slot(col, 0u) + i + 1u];
    return low + vec4<f32>(dot(a.high, u), dot(b.high, u), dot(c.high, u), dot(d.high, u));
}

fn add_decoded(i: u32, a: Quants, b: Quants, c: Quants, d: Quants) {
    sum0 += dot_decoded(0u, i, a, b, c, d);
    if (N_VECTORS > 1u) { sum1 += dot_decoded(1u, i, a, b, c, d); }
    if (N_VECTORS > 2u) { sum2 += dot_decoded(2u, i, a, b, c, d); }
    if (N_VECTORS > 3u) { sum3 += dot_decoded(3u, i, a, b, c, d); }
    if (N_VECTORS > 4u) { sum4 += dot_decoded(4u, i, a, b, c, d); }
    if (N_VECTORS > 5u) { sum5 += dot_decoded(5u, i, a, b, c, d); }
    if (N_VECTORS > 6u) { sum6 += dot_decoded(6u, i, a, b, c, d); }
    if (N_VECTORS > 7u) { sum7 += dot_decoded(7u, i, a, b, c, d); }
}

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
    let row = 4u * (group_index(workgroup, groups) * slots + slot);
    // Rows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    let r0 = min(row, last);
    let r1 = min(row + 1u, last);
    let r2 = min(row + 2u, last);
    let r3 = min(row + 3u, last);
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        stage_x_tile(lid, 0u, tile);
        let end = min(soa_row_chunks(), tile + TILE);
        for (var c = tile + lane % lanes; c < end; c += lanes) {
            let w0 = load_soa_chunk(stream_base(r0), stream_chunk(r0) + c);
            let w1 = load_soa_chunk(stream_base(r1), stream_chunk(r1) + c);
            let w2 = load_soa_chunk(stream_base(r2), stream_chunk(r2) + c);
            let w3 = load_soa_chunk(stream_base(r3), stream_chunk(r3) + c);
            let s0 = soa_scales(w0, stream_chunk(r0) + c);
            let s1 = soa_scales(w1, stream_chunk(r1) + c);
            let s2 = soa_scales(w2, stream_chunk(r2) + c);
            let s3 = soa_scales(w3, stream_chunk(r3) + c);
            let i = x_slot(0u, c - tile);
            for (var j = 0u; j < 4u; j++) {
                add_decoded(
                    i + j * (soa_chunk_elements() / 16u),
                    decoded(w0, s0, j), decoded(w1, s1, j), decoded(w2, s2, j), decoded(w3, s3, j),
                );
            }
        }
        workgroupBarrier();
    }
    let mine = row + lane % lanes / (lanes / 4u);
    let keeps = slot < slots && lane % (lanes / 4u) == 0u && mine < ROWS;
    for (var col = 0u; col < N_VECTORS; col++) {
        let one = sum_four(column_sum(col), lane, lanes);
        if (keeps) {
            store_y(
                col * Y_STRIDE + Y_OFFSET + mine, one,
                old_y(col * Y_STRIDE + Y_OFFSET + mine),
            );
        }
    }
}
