// The product of matmul on matrix units, whatever the size of their fragments and wherever sums go. A variant
// enables f16 and wgpu_cooperative_matrix and says what a fragment is: FRAG, FragmentA (f16), FragmentB
// (f16), FragmentC (f32); how f16 lies in workgroup memory: Unit, of UNIT elements, stage_x and stage_w; what
// f16 leaves of x, multiply_rest; in how many SPLITS the columns of the matrix go; and where sums go.
//
// The loads of the next tile are in flight while one is multiplied.
// A subgroup beyond the last block repeats one, so WG may count on the largest subgroup size of an
// adapter and control flow stays uniform. Fragments are named and not indexed: an array of them
// that a driver does not unroll would leave the registers.
// import: format/weight_eight, grid, matmul/parts/x_words
// requires: type FragmentA, FragmentB, FragmentC, Unit
// requires: const FRAG, UNIT: u32
// requires: override SPLITS: u32
// requires: fn add_sum(split: u32, m: u32, n: u32, sum: f32)
// requires: fn aligned_rows() -> bool
// requires: fn first_sums(split: u32, m: u32, n: u32) -> FragmentC
// requires: fn has_first_sums() -> bool
// requires: fn multiply_rest(at: u32, b: FragmentB, c: FragmentC) -> FragmentC
// requires: fn stage_w(at: u32, raw: Raw, i: u32)
// requires: fn stage_x(at: u32, raw: Raw)
// requires: fn store_sums(c: FragmentC, split: u32, m: u32, n: u32)
override ROWS: u32;
override TM: u32 = 64u; // a multiple of FRAG FM
override TN: u32 = 64u; // a multiple of FRAG FN
override TK: u32 = 32u; // a multiple of 16
override FM: u32 = 2u; // 1 to 4
override FN: u32 = 2u; // 1 to 4
override SG: u32 = 32u; // the adapter's largest subgroup size

override STRIDE: u32 = (TK + 8u) / UNIT; // units from a staged row to the next
override PIECES: u32 = TK / 8u; // eights of a row
override X_PIECES: u32 = TM * PIECES;
override W_PIECES: u32 = TN * PIECES;
override BLOCKS_N: u32 = TN / (FRAG * FN);
override BLOCKS: u32 = BLOCKS_N * (TM / (FRAG * FM));
override WG: u32 = BLOCKS * SG;
override XS: u32 = TM * STRIDE;
override WS: u32 = TN * STRIDE;
override EDGE: u32 = BLOCKS * FRAG * FRAG;

var<workgroup> x_fragments: array<Unit, XS>;
var<workgroup> w_fragments: array<Unit, WS>;
var<workgroup> edge_fragment: array<f32, EDGE>;

// Piece p of a tile: eight elements of a row.
fn fetch_x_fragment(p: u32, m0: u32, k: u32) -> Raw {
    var raw: Raw;
    if (p < X_PIECES) { raw = load_x_words(m0 + p / PIECES, k + 8u * (p % PIECES)); }
    return raw;
}

fn fetch_w_fragment(p: u32, n0: u32, k: u32) -> Raw {
    var raw: Raw;
    let i = k + 8u * (p % PIECES);
    let n = n0 + p / PIECES;
    if (p < W_PIECES && n < ROWS && i < K) { raw = load_weights(n, i); }
    return raw;
}

fn stage_x_fragment(p: u32, raw: Raw) {
    if (p < X_PIECES) { stage_x(p / PIECES * STRIDE + p % PIECES * (8u / UNIT), raw); }
}

fn stage_w_fragment(p: u32, raw: Raw, k: u32) {
    if (p >= W_PIECES) { return; }
    stage_w(p / PIECES * STRIDE + p % PIECES * (8u / UNIT), raw, k + 8u * (p % PIECES));
}

// Where a workgroup and a subgroup in it are.
struct FragmentPlace { m0: u32, n0: u32, split: u32, block: u32, whole: bool, lid: u32 }

fn fragment_row(i: u32, place: FragmentPlace) -> u32 {
    return place.m0 + (place.block / BLOCKS_N * FM + i) * FRAG;
}

fn fragment_column(j: u32, place: FragmentPlace) -> u32 {
    return place.n0 + (place.block % BLOCKS_N * FN + j) * FRAG;
}

// What fragment (i, j) of every block is added to, of a tile that is whole.
fn load_fragment(i: u32, j: u32, place: FragmentPlace) -> FragmentC {
    return first_sums(place.split, fragment_row(i, place), fragment_column(j, place));
}

// Stores fragment (i, j) of every block.
fn store_fragment(c: FragmentC, i: u32, j: u32, place: FragmentPlace) {
    if (place.whole) {
        store_sums(c, place.split, fragment_row(i, place), fragment_column(j, place));
        return;
    }
    let own = place.block * FRAG * FRAG;
    coopStoreT(c, &edge_fragment[own], FRAG);
    workgroupBarrier();
    for (var e = place.lid; e < EDGE; e += WG) {
        let block = e / (FRAG * FRAG);
        let m = place.m0 + (block / BLOCKS_N * FM + i) * FRAG + e / FRAG % FRAG;
        let n = place.n0 + (block % BLOCKS_N * FN + j) * FRAG + e % FRAG;
        if (m < N_TOKENS && n < ROWS) { add_sum(place.split, m, n, edge_fragment[e]); }
    }
    workgroupBarrier();
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let group = group_index(workgroup, groups);
    let tiles = (N_TOKENS + TM - 1u) / TM;
    let columns = (ROWS + TN - 1u) / TN;
    let split = group / (tiles * columns);
    let m0 = group % tiles * TM;
    // A workgroup beyond the last one has no columns.
    let n0 = select(columns, group / tiles % columns, split < SPLITS) * TN;
    let depth = (K + SPLITS * TK - 1u) / (SPLITS * TK) * TK;
    let begin = split * depth;
    let end = min(begin + depth, K);
    let block = subgroup % BLOCKS;
    let a = block / BLOCKS_N * FM * FRAG * STRIDE;
    let b = block % BLOCKS_N * FN * FRAG * STRIDE;
    // Stores of whole fragments need rows on 16 bytes.
    let whole = aligned_rows() && m0 + TM <= N_TOKENS && n0 + TN <= ROWS;
    let place = FragmentPlace(m0, n0, split, block, whole, lid);
    var c00 = FragmentC();
    var c01 = FragmentC();
    var c02 = FragmentC();
    var c03 = FragmentC();
    var c10 = FragmentC();
    var c11 = FragmentC();
    var c12 = FragmentC();
    var c13 = FragmentC();
    var c20 = FragmentC();
    var c21 = FragmentC();
    var c22 = FragmentC();
    var c23 = FragmentC();
    var c30 = FragmentC();
    var c31 = FragmentC();
    var c32 = FragmentC();
    var c33 = FragmentC();
    if (has_first_sums() && whole) {
        c00 = load_fragment(0u, 0u, place);
        if (FN > 1u) { c01 = load_fragment(0u, 1u, place); }
        if (FN > 2u) { c02 = load_fragment(0u, 2u, place); }
        if (FN > 3u) { c03 = load_fragment(0u, 3u, place); }
        if (FM > 1u) { c10 = load_fragment(1u, 0u, place); }
        if (FM > 1u && FN > 1u) { c11 = load_fragment(1u, 1u, place); }
        if (FM > 1u && FN > 2u) { c12 = load_fragment(1u, 2u, place); }
        if (FM > 1u && FN > 3u) { c13 = load_fragment(1u, 3u, place); }
        if (FM > 2u) { c20 = load_fragment(2u, 0u, place); }
        if (FM > 2u && FN > 1u) { c21 = load_fragment(2u, 1u, place); }
        if (FM > 2u && FN > 2u) { c22 = load_fragment(2u, 2u, place); }
        if (FM > 2u && FN > 3u) { c23 = load_fragment(2u, 3u, place); }
        if (FM > 3u) { c30 = load_fragment(3u, 0u, place); }
        if (FM > 3u && FN > 1u) { c31 = load_fragment(3u, 1u, place); }
        if (FM > 3u && FN > 2u) { c32 = load_fragment(3u, 2u, place); }
        if (FM > 3u && FN > 3u) { c33 = load_fragment(3u, 3u, place); }
    }
    var x0 = fetch_x_fragment(lid, m0, begin);
    var x1 = fetch_x_fragment(lid + WG, m0, begin);
    var x2 = fetch_x_fragment(lid + 2u * WG, m0, begin);
    var x3 = fetch_x_fragment(lid + 3u * WG, m0, begin);
    var w0 = fetch_w_fragment(lid, n0, begin);
    var w1 = fetch_w_fragment(lid + WG, n0, begin);
    var w2 = fetch_w_fragment(lid + 2u * WG, n0, begin);
    var w3 = fetch_w_fragment(lid + 3u * WG, n0, begin);
    for (var k = begin; k < end; k += TK) {
        stage_x_fragment(lid, x0);
        if (WG < X_PIECES) { stage_x_fragment(lid + WG, x1); }
        if (2u * WG < X_PIECES) { stage_x_fragment(lid + 2u * WG, x2); }
        if (3u * WG < X_PIECES) { stage_x_fragment(lid + 3u * WG, x3); }
        stage_w_fragment(lid, w0, k);
        if (WG < W_PIECES) { stage_w_fragment(lid + WG, w1, k); }
        if (2u * WG < W_PIECES) { stage_w_fragment(lid + 2u * WG, w2, k); }
        if (3u * WG < W_PIECES) { stage_w_fragment(lid + 3u * WG, w3, k); }
        // What four loads an invocation do not cover is not fetched ahead.
        for (var p = lid + 4u * WG; p < X_PIECES; p += WG) {
            stage_x_fragment(p, fetch_x_fragment(p, m0, k));
        }
        for (var p = lid + 4u * WG; p < W_PIECES; p += WG) {
            stage_w_fragment(p, fetch_w_fragment(p, n0, k), k);
        }
        workgroupBarrier();
        // Past the last tile nothing is loaded.
        x0 = fetch_x_fragment(lid, m0, k + TK);
        if (WG < X_PIECES) { x1 = fetch_x_fragment(lid + WG, m0, k + TK); }
        if (2u * WG < X_PIECES) { x2 = fetch_x_fragment(lid + 2u * WG, m0, k + TK); }
        if (3u * WG < X_PIECES) { x3 = fetch_x_fragment(lid + 3u * WG, m0, k + TK); }
        w0 = fetch_w_fragment(lid, n0, k + TK);
        if (WG < W_PIECES) { w1 = fetch_w_fragment(lid + WG, n0, k + TK); }
        if (2u * WG < W_PIECES) { w2 = fetch_w_fragment(lid + 2u * WG, n0, k + TK); }
        if (3u * WG < W_PIECES) { w3 = fetch_w_fragment(lid + 3u * WG, n0, k + TK); }
        for (var i = 0u; i < TK / UNIT; i += FRAG / UNIT) {
            let a0 = coopLoadT<FragmentA>(&x_fragments[a + i], STRIDE);
            var a1 = a0;
            if (FM > 1u) { a1 = coopLoadT<FragmentA>(&x_fragments[a + i + FRAG * STRIDE], STRIDE); }
            var a2 = a0;
            if (FM > 2u) { a2 = coopLoadT<FragmentA>(&x_fragments[a + i + 2u * FRAG * STRIDE], STRIDE); }
            var a3 = a0;
            if (FM > 3u) { a3 = coopLoadT<FragmentA>(&x_fragments[a + i + 3u * FRAG * STRIDE], STRIDE); }
            // W is staged by rows, which are the columns of its transpose.
            let b0 = coopLoad<FragmentB>(&w_fragments[b + i], STRIDE);
            c00 = multiply_rest(a + i, b0, coopMultiplyAdd(a0, b0, c00));
            if (FM > 1u) { c10 = multiply_rest(a + i + FRAG * STRIDE, b0, coopMultiplyAdd(a1, b0, c10)); }
            if (FM > 2u) { c20 = multiply_rest(a + i + 2u * FRAG * STRIDE, b0, coopMultiplyAdd(a2, b0, c20)); }
            if (FM > 3u) { c30 = multiply_rest(a + i + 3u * FRAG * STRIDE, b0, coopMultiplyAdd(a3, b0, c30)); }
            if (FN > 1u) {
                let b1 = coopLoad<FragmentB>(&w_fragments[b + i + FRAG * STRIDE], STRIDE);
                c01 = multiply_rest(a + i, b1, coopMultiplyAdd(a0, b1, c01));
                if (FM > 1u) { c11 = multiply_rest(a + i + FRAG * STRIDE, b1, coopMultiplyAdd(a1, b1, c11)); }
                if (FM > 2u) { c21 = multiply_rest(a + i + 2u * FRAG * STRIDE, b1, coopMultiplyAdd(a2, b1, c21)); }
                if (FM > 3u) { c31 = multiply_rest(a + i + 3u * FRAG * STRIDE, b1, coopMultiplyAdd(a3, b1, c31)); }
            }
            if (FN > 2u) {
                let b2 = coopLoad<FragmentB>(&w_fragments[b + i + 2u * FRAG * STRIDE], STRIDE);
                c02 = multiply_rest(a + i, b2, coopMultiplyAdd(a0, b2, c02));
                if (FM > 1u) { c12 = multiply_rest(a + i + FRAG * STRIDE, b2, coopMultiplyAdd(a1, b2, c12)); }
                if (FM > 2u) { c22 = multiply_rest(a + i + 2u * FRAG * STRIDE, b2, coopMultiplyAdd(a2, b2, c22)); }
                if (FM > 3u) { c32 = multiply_rest(a + i + 3u * FRAG * STRIDE, b2, coopMultiplyAdd(a3, b2, c32)); }
            }
            if (FN > 3u) {
                let b3 = coopLoad<FragmentB>(&w_fragments[b + i + 3u * FRAG * STRIDE], STRIDE);
                c03 = multiply_rest(a + i, b3, coopMultiplyAdd(a0, b3, c03));
                if (FM > 1u) { c13 = multiply_rest(a + i + FRAG * STRIDE, b3, coopMultiplyAdd(a1, b3, c13)); }
                if (FM > 2u) { c23 = multiply_rest(a + i + 2u * FRAG * STRIDE, b3, coopMultiplyAdd(a2, b3, c23)); }
                if (FM > 3u) { c33 = multiply_rest(a + i + 3u * FRAG * STRIDE, b3, coopMultiplyAdd(a3, b3, c33)); }
            }
        }
        workgroupBarrier();
    }
    store_fragment(c00, 0u, 0u, place);
    if (FN > 1u) { store_fragment(c01, 0u, 1u, place); }
    if (FN > 2u) { store_fragment(c02, 0u, 2u, place); }
    if (FN > 3u) { store_fragment(c03, 0u, 3u, place); }
    if (FM > 1u) { store_fragment(c10, 1u, 0u, place); }
    if (FM > 1u && FN > 1u) { store_fragment(c11, 1u, 1u, place); }
    if (FM > 1u && FN > 2u) { store_fragment(c12, 1u, 2u, place); }
    if (FM > 1u && FN > 3u) { store_fragment(c13, 1u, 3u, place); }
    if (FM > 2u) { store_fragment(c20, 2u, 0u, place); }
    if (FM > 2u && FN > 1u) { store_fragment(c21, 2u, 1u, place); }
    if (FM > 2u && FN > 2u) { store_fragment(c22, 2u, 2u, place); }
    if (FM > 2u && FN > 3u) { store_fragment(c23, 2u, 3u, place); }
    if (FM > 3u) { store_fragment(c30, 3u, 0u, place); }
    if (FM > 3u && FN > 1u) { store_fragment(c31, 3u, 1u, place); }
    if (FM > 3u && FN > 2u) { store_fragment(c32, 3u, 2u, place); }
    if (FM > 3u && FN > 3u) { store_fragment(c33, 3u, 3u, place); }
}
