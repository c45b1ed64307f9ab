// A matrix times many vectors at once on matrix units of 16 x 16: a weight is read once for all of them.
//
// A workgroup makes TN rows of the product with TM vectors. Weights and vectors are rounded to f16 on their
// way into workgroup memory, where subgroups read fragments: each has FN x 16 rows and all vectors, so that a
// fragment of weights meets FM of vectors. A vector in f32 is two f16, the first eleven bits and the rest,
// of which each meets the weights: 21 bits.
//
// What a workgroup holds decides how many a compute unit holds, and those how many loads are in flight: one
// tile of TK columns is staged, and the loads of the next two are under way in registers.
//
// Few rows are few tiles: SPLITS workgroups then share the columns of each. Their sums go to memory of their
// own, in whole tiles, and a second stage adds them; so do sums that do not fill y in whole tiles (DIRECT 0).
//
// A subgroup beyond the last block repeats one, so that control flow stays uniform where subgroups are
// smaller than SG. Fragments have names: an array of them that a driver does not unroll would leave the
// registers.
// import: grid, math/eleven_bits, matvec/epilogue/rows_of_y, matvec/epilogue/store
// requires: type Piece
// requires: override K, ROWS: u32
// requires: fn load_piece(row: u32, piece: u32) -> Piece
// requires: fn piece_elements() -> u32
// requires: fn row_pieces() -> u32
// requires: fn stage_piece(at: u32, piece: Piece, index: u32)
// requires: var parts, y: array<f32>
// requires: var x: array<vec4<u32>>
override ACT_FORMAT: u32;
override N_VECTORS: u32 = 1u;
override SPLITS: u32 = 1u;
override FM: u32 = 1u; // 1 to 4
override FN: u32 = 1u; // 1 or 2
override TK: u32 = 64u; // a multiple of 16 and of piece_elements()
override DIRECT: u32 = 0u; // 1: sums are y, in whole tiles
override SUBGROUPS: u32 = 4u;
override SG: u32 = 32u; // the adapter's largest subgroup size

override WG: u32 = SUBGROUPS * SG;
override TM: u32 = 16u * FM;
override TN: u32 = 16u * FN * SUBGROUPS;
override STRIDE: u32 = (TK + 8u) / 4u; // units from a staged row to the next
override X_PIECES: u32 = TM * (TK / 8u);
override X_UNITS: u32 = TM * STRIDE;
override W_UNITS: u32 = TN * STRIDE;
// Fragments want all variables on 16 bytes.
override REST_UNITS: u32 = X_UNITS * (1u - ACT_FORMAT) + 2u * ACT_FORMAT;

alias FragmentA = coop_mat16x16<f16, A>;
alias FragmentB = coop_mat16x16<f16, B>;
alias FragmentC = coop_mat16x16<f32, C>;

// Eight bytes a store.
alias Unit = vec4<f16>;

var<workgroup> x_units: array<Unit, X_UNITS>;
var<workgroup> rest_units: array<Unit, REST_UNITS>;
var<workgroup> w_units: array<Unit, W_UNITS>;

// Loaded words of eight elements of a vector.
struct Loaded { a: vec4<u32>, b: vec4<u32> }

// Eight elements of a vector; zero beyond the last one, and from `end` on, a multiple of eight.
fn load_vector_piece(p: u32, m0: u32, k: u32, end: u32) -> Loaded {
    var raw: Loaded;
    let m = m0 + p / (TK / 8u);
    let i = k + 8u * (p % (TK / 8u));
    if (p < X_PIECES && m < N_VECTORS && i < end) {
        let at = (m * K + i) / 8u;
        if (ACT_FORMAT == F32) {
            raw = Loaded(x[2u * at], x[2u * at + 1u]);
        } else {
            raw.a = x[at];
        }
    }
    return raw;
}

fn stage_vector_piece(p: u32, raw: Loaded) {
    if (p >= X_PIECES) { return; }
    let at = p / (TK / 8u) * STRIDE + 2u * (p % (TK / 8u));
    if (ACT_FORMAT == F32) {
        let low = bitcast<vec4<f32>>(raw.a);
        let high = bitcast<vec4<f32>>(raw.b);
        x_units[at] = Unit(eleven_bits(low));
        x_units[at + 1u] = Unit(eleven_bits(high));
        rest_units[at] = Unit(low - eleven_bits(low));
        rest_units[at + 1u] = Unit(high - eleven_bits(high));
    } else {
        x_units[at] = Unit(vec4<f32>(unpack2x16float(raw.a.x), unpack2x16float(raw.a.y)));
        x_units[at + 1u] = Unit(vec4<f32>(unpack2x16float(raw.a.z), unpack2x16float(raw.a.w)));
    }
}

fn tile_pieces() -> u32 { return TK / piece_elements(); }
fn w_pieces() -> u32 { return TN * tile_pieces(); }

// Rows and columns past the end repeat the last ones: loads stay inside, and meet zeros or are dropped.
fn load_row_piece(p: u32, n0: u32, k: u32) -> Piece {
    let row = min(n0 + min(p, w_pieces() - 1u) / tile_pieces(), ROWS - 1u);
    return load_piece(row, min(k / piece_elements() + p % tile_pieces(), row_pieces() - 1u));
}

fn stage_row_piece(p: u32, piece: Piece, k: u32) {
    if (p >= w_pieces()) { return; }
    let at = p / tile_pieces() * STRIDE + p % tile_pieces() * (piece_elements() / 4u);
    stage_piece(at, piece, min(k / piece_elements() + p % tile_pieces(), row_pieces() - 1u));
}

fn vector_tiles() -> u32 { return (N_VECTORS + TM - 1u) / TM; }
fn row_tiles() -> u32 { return (ROWS + TN - 1u) / TN; }

// Where a sum of a part of the columns lies: parts are (SPLITS, vectors, rows), both in whole tiles.
fn part_at(split: u32, m: u32, n: u32) -> u32 {
    return (split * vector_tiles() * TM + m) * row_tiles() * TN + n;
}

// naga 30 evaluates an index or a stride written inside coopStoreT after the store: they need names before.
fn put_sums(c: FragmentC, split: u32, m: u32, n: u32) {
    if (DIRECT == 1u) {
        let at = y_at(m, n);
        let stride = Y_STRIDE;
        coopStoreT(c, &y[at], stride);
    } else {
        let at = part_at(split, m, n);
        let stride = row_tiles() * TN;
        coopStoreT(c, &parts[at], stride);
    }
}

// Fragment i of the rest of the vectors times b, added to c.
fn add_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC {
    if (ACT_FORMAT != F32) { return c; }
    let a = coopLoadT<FragmentA>(&rest_units[at], STRIDE);
    return coopMultiplyAdd(a, b, c);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let group = group_index(workgroup, groups);
    // Workgroups beyond the last one repeat it.
    let split = min(group / (vector_tiles() * row_tiles()), SPLITS - 1u);
    let m0 = group % vector_tiles() * TM;
    let n0 = group / vector_tiles() % row_tiles() * TN;
    let depth = (K + SPLITS * TK - 1u) / (SPLITS * TK) * TK;
    let begin = split * depth;
    let end = min(begin + depth, K);
    let block = subgroup % SUBGROUPS;
    var c00 = FragmentC();
    var c01 = FragmentC();
    var c10 = FragmentC();
    var c11 = FragmentC();
    var c20 = FragmentC();
    var c21 = FragmentC();
    var c30 = FragmentC();
    var c31 = FragmentC();
    var v0 = load_row_piece(lid, n0, begin);
    var v1 = load_row_piece(lid + WG, n0, begin);
    var v2 = load_row_piece(lid + 2u * WG, n0, begin);
    var v3 = load_row_piece(lid + 3u * WG, n0, begin);
    var w0 = load_row_piece(lid, n0, begin + TK);
    var w1 = load_row_piece(lid + WG, n0, begin + TK);
    var w2 = load_row_piece(lid + 2u * WG, n0, begin + TK);
    var w3 = load_row_piece(lid + 3u * WG, n0, begin + TK);
    var x0 = load_vector_piece(lid, m0, begin, end);
    var x1 = load_vector_piece(lid + WG, m0, begin, end);
    var x2 = load_vector_piece(lid + 2u * WG, m0, begin, end);
    var x3 = load_vector_piece(lid + 3u * WG, m0, begin, end);
    var is_odd = false;
    for (var k = begin; k < end; k += TK) {
        stage_vector_piece(lid, x0);
        if (WG < X_PIECES) { stage_vector_piece(lid + WG, x1); }
        if (2u * WG < X_PIECES) { stage_vector_piece(lid + 2u * WG, x2); }
        if (3u * WG < X_PIECES) { stage_vector_piece(lid + 3u * WG, x3); }
        // Of the two tiles under way the one that is not staged keeps its registers: a move would wait for it.
        if (is_odd) {
            stage_row_piece(lid, w0, k);
            if (WG < w_pieces()) { stage_row_piece(lid + WG, w1, k); }
            if (2u * WG < w_pieces()) { stage_row_piece(lid + 2u * WG, w2, k); }
            if (3u * WG < w_pieces()) { stage_row_piece(lid + 3u * WG, w3, k); }
        } else {
            stage_row_piece(lid, v0, k);
            if (WG < w_pieces()) { stage_row_piece(lid + WG, v1, k); }
            if (2u * WG < w_pieces()) { stage_row_piece(lid + 2u * WG, v2, k); }
            if (3u * WG < w_pieces()) { stage_row_piece(lid + 3u * WG, v3, k); }
        }
        // What four loads an invocation do not cover is not fetched ahead.
        for (var p = lid + 4u * WG; p < X_PIECES; p += WG) {
            stage_vector_piece(p, load_vector_piece(p, m0, k, end));
        }
        for (var p = lid + 4u * WG; p < w_pieces(); p += WG) { stage_row_piece(p, load_row_piece(p, n0, k), k); }
        workgroupBarrier();
        let later = k + 2u * TK;
        if (is_odd) {
            w0 = load_row_piece(lid, n0, later);
            if (WG < w_pieces()) { w1 = load_row_piece(lid + WG, n0, later); }
            if (2u * WG < w_pieces()) { w2 = load_row_piece(lid + 2u * WG, n0, later); }
            if (3u * WG < w_pieces()) { w3 = load_row_piece(lid + 3u * WG, n0, later); }
        } else {
            v0 = load_row_piece(lid, n0, later);
            if (WG < w_pieces()) { v1 = load_row_piece(lid + WG, n0, later); }
            if (2u * WG < w_pieces()) { v2 = load_row_piece(lid + 2u * WG, n0, later); }
            if (3u * WG < w_pieces()) { v3 = load_row_piece(lid + 3u * WG, n0, later); }
        }
        is_odd = !is_odd;
        x0 = load_vector_piece(lid, m0, k + TK, end);
        if (WG < X_PIECES) { x1 = load_vector_piece(lid + WG, m0, k + TK, end); }
        if (2u * WG < X_PIECES) { x2 = load_vector_piece(lid + 2u * WG, m0, k + TK, end); }
        if (3u * WG < X_PIECES) { x3 = load_vector_piece(lid + 3u * WG, m0, k + TK, end); }
        let b = block * FN * 16u * STRIDE;
        for (var i = 0u; i < TK / 4u; i += 4u) {
            // W is staged by rows, which are the columns of its transpose.
            let b0 = coopLoad<FragmentB>(&w_units[b + i], STRIDE);
            var b1 = b0;
            if (FN > 1u) { b1 = coopLoad<FragmentB>(&w_units[b + i + 16u * STRIDE], STRIDE); }
            let a0 = coopLoadT<FragmentA>(&x_units[i], STRIDE);
            c00 = add_rest(i, b0, coopMultiplyAdd(a0, b0, c00));
            if (FN > 1u) { c01 = add_rest(i, b1, coopMultiplyAdd(a0, b1, c01)); }
            if (FM > 1u) {
                let at = i + 16u * STRIDE;
                let a1 = coopLoadT<FragmentA>(&x_units[at], STRIDE);
                c10 = add_rest(at, b0, coopMultiplyAdd(a1, b0, c10));
                if (FN > 1u) { c11 = add_rest(at, b1, coopMultiplyAdd(a1, b1, c11)); }
            }
            if (FM > 2u) {
                let at = i + 32u * STRIDE;
                let a2 = coopLoadT<FragmentA>(&x_units[at], STRIDE);
                c20 = add_rest(at, b0, coopMultiplyAdd(a2, b0, c20));
                if (FN > 1u) { c21 = add_rest(at, b1, coopMultiplyAdd(a2, b1, c21)); }
            }
            if (FM > 3u) {
                let at = i + 48u * STRIDE;
                let a3 = coopLoadT<FragmentA>(&x_units[at], STRIDE);
                c30 = add_rest(at, b0, coopMultiplyAdd(a3, b0, c30));
                if (FN > 1u) { c31 = add_rest(at, b1, coopMultiplyAdd(a3, b1, c31)); }
            }
        }
        workgroupBarrier();
    }
    let n = n0 + block * FN * 16u;
    put_sums(c00, split, m0, n);
    if (FN > 1u) { put_sums(c01, split, m0, n + 16u); }
    if (FM > 1u) { put_sums(c10, split, m0 + 16u, n); }
    if (FM > 1u && FN > 1u) { put_sums(c11, split, m0 + 16u, n + 16u); }
    if (FM > 2u) { put_sums(c20, split, m0 + 32u, n); }
    if (FM > 2u && FN > 1u) { put_sums(c21, split, m0 + 32u, n + 16u); }
    if (FM > 3u) { put_sums(c30, split, m0 + 48u, n); }
    if (FM > 3u && FN > 1u) { put_sums(c31, split, m0 + 48u, n + 16u); }
}

const ADD_WG: u32 = 256u;

// One invocation an element of y.
@compute @workgroup_size(ADD_WG)
fn sum(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * ADD_WG + lid;
    if (i >= N_VECTORS * ROWS) { return; }
    let at = y_at(i / ROWS, i % ROWS);
    let before = old_y(at);
    var all = 0.0;
    for (var split = 0u; split < SPLITS; split++) { all += parts[part_at(split, i / ROWS, i % ROWS)]; }
    store_y(at, all, before);
}
