// gemv_q/planes_batch: up to eight columns of activations over weights that are decoded once.
//
//   y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]
//   W: (ROWS, K) quantised, SoA-repacked  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS)
//
// Idea: decoding costs several times a multiply-add, so eight weights of each of four rows are
// decoded exactly and meet every column before the next eight; the weights cross the bus once for
// all columns. For several tokens at once: speculative decoding, several sequences.
// import: grid, matvec/epilogue/store, matvec/prologue/plain, matvec/prologue/x_tile
// import: matvec/rows/soa, reduce/four
override Y_OFFSET: u32;
override N_VECTORS: u32;
override WG: u32 = 128u;
override LANES: u32 = 32u; // a power of two from 4 on
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// Sums of four rows, a column each.
var<private> sum0: vec4<f32>;
var<private> sum1: vec4<f32>;
var<private> sum2: vec4<f32>;
var<private> sum3: vec4<f32>;
var<private> sum4: vec4<f32>;
var<private> sum5: vec4<f32>;
var<private> sum6: vec4<f32>;
var<private> sum7: vec4<f32>;

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
fn column(col: u32, i: u32, a: Quants, b: Quants, c: Quants, d: Quants) -> vec4<f32> {
    let v = x_tile[x_slot(col, 0u) + i];
    let low = vec4<f32>(dot(a.low, v), dot(b.low, v), dot(c.low, v), dot(d.low, v));
    if (WEIGHT == Q8_0) { return low; }
    let u = x_tile[x_slot(col, 0u) + i + 1u];
    return low + vec4<f32>(dot(a.high, u), dot(b.high, u), dot(c.high, u), dot(d.high, u));
}

fn columns(i: u32, a: Quants, b: Quants, c: Quants, d: Quants) {
    sum0 += column(0u, i, a, b, c, d);
    if (N_VECTORS > 1u) { sum1 += column(1u, i, a, b, c, d); }
    if (N_VECTORS > 2u) { sum2 += column(2u, i, a, b, c, d); }
    if (N_VECTORS > 3u) { sum3 += column(3u, i, a, b, c, d); }
    if (N_VECTORS > 4u) { sum4 += column(4u, i, a, b, c, d); }
    if (N_VECTORS > 5u) { sum5 += column(5u, i, a, b, c, d); }
    if (N_VECTORS > 6u) { sum6 += column(6u, i, a, b, c, d); }
    if (N_VECTORS > 7u) { sum7 += column(7u, i, a, b, c, d); }
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
                columns(
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
        var sum = sum0;
        switch col {
            case 1u: { sum = sum1; }
            case 2u: { sum = sum2; }
            case 3u: { sum = sum3; }
            case 4u: { sum = sum4; }
            case 5u: { sum = sum5; }
            case 6u: { sum = sum6; }
            case 7u: { sum = sum7; }
            default: {}
        }
        let one = sum_four(sum, lane, lanes);
        if (keeps) { store_y(col * (Y_OFFSET + ROWS) + Y_OFFSET + mine, one, old_y(col * (Y_OFFSET + ROWS) + Y_OFFSET + mine)); }
    }
}
