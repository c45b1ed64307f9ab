// Sixteen bytes of quants of a SoA row as loaded, and as f16 in workgroup memory.
// import: matvec/rows/soa
// requires: type Unit
// requires: var w_units: array<Unit, W_UNITS>
alias Piece = SoaChunk;

fn piece_elements() -> u32 { return soa_chunk_elements(); }
fn row_pieces() -> u32 { return soa_row_chunks(); }

fn load_piece(row: u32, piece: u32) -> Piece {
    return load_soa_chunk(stream_base(row), stream_chunk(row) + piece);
}

fn stage_quants(at: u32, q: vec4<f32>, scale: f32, summand: f32) {
    w_units[at] = Unit(fma(q, vec4<f32>(scale), vec4<f32>(summand)));
}

fn stage_piece(at: u32, piece: Piece, index: u32) {
    let s = soa_scales(piece.scale, index);
    let p = quants_at(piece, 0u);
    let q = quants_at(piece, 1u);
    let r = quants_at(piece, 2u);
    let t = quants_at(piece, 3u);
    if (WEIGHT == Q8_0) {
        stage_quants(at, p.low, s.x, 0.0);
        stage_quants(at + 1u, q.low, s.x, 0.0);
        stage_quants(at + 2u, r.low, s.x, 0.0);
        stage_quants(at + 3u, t.low, s.x, 0.0);
        return;
    }
    // q6_k has a scale for each half and no minimum.
    let last = select(s.x, s.y, WEIGHT == Q6_K);
    let least = select(s.y, 0.0, WEIGHT == Q6_K) - quant_offset() * s.x;
    stage_quants(at, p.low, s.x, least);
    stage_quants(at + 1u, p.high, s.x, least);
    stage_quants(at + 2u, q.low, s.x, least);
    stage_quants(at + 3u, q.high, s.x, least);
    stage_quants(at + 4u, r.low, last, least);
    stage_quants(at + 5u, r.high, last, least);
    stage_quants(at + 6u, t.low, last, least);
    stage_quants(at + 7u, t.high, last, least);
}
