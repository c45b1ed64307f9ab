// Eight weights of a dense row of 16 bits as loaded, and rounded to f16 in workgroup memory.
// import: format/dense, matvec/rows/dense16
// requires: type Unit
// requires: var w_units: array<Unit, W_UNITS>
alias Piece = Chunk;

fn piece_elements() -> u32 { return 8u; }
fn row_pieces() -> u32 { return row_chunks(); }
fn load_piece(row: u32, piece: u32) -> Piece { return load_chunk(row, piece); }

fn stage_piece(at: u32, piece: Piece, index: u32) {
    w_units[at] = Unit(unpack_low(piece));
    w_units[at + 1u] = Unit(unpack_high(piece));
}
