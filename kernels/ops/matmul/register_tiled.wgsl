// matmul/register_tiled: TM x TN elements of y a workgroup, 8 columns and RM rows an invocation.
//
// Idea: 8 x 8 sums in registers need 16 reads of workgroup memory for 256 multiply-adds, so that
// the multiply-adds are what bounds it. A tile is 16 elements deep: operands of 128 x 128 elements
// of y fill 16 KiB, what every adapter has. The next tile's loads are in flight while the last one
// is multiplied, and weights are decoded between the two. An invocation's rows and columns lie
// TM/RM and TN/8 apart: neighbours read neighbouring rows of a tile, whose 16-byte slots are
// swizzled so that eight of them lie in different banks, and write neighbouring elements of y.
// Workgroups that share rows of W follow each other.
//
// Source: the tiling of Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", 2008.
// import: format/weight_eight, grid, matmul/parts/x_words
// TM / RM and TN / 8 are multiples of 8.
override TM: u32 = 128u;
override TN: u32 = 128u;
override RM: u32 = 8u; // 8 or 4
override COLUMNS: u32 = TN / 8u; // invocations side by side
override LINES: u32 = TM / RM; // and below each other
override WG: u32 = COLUMNS * LINES;
override XS: u32 = 4u * TM;
override WS: u32 = 4u * TN;

// Rows of 16 elements in four slots.
var<workgroup> xs: array<vec4<f32>, XS>;
var<workgroup> ws: array<vec4<f32>, WS>;

// Slot of elements 4j..4j+4 of a row.
fn slot(row: u32, j: u32) -> u32 {
    return 4u * row + (j ^ (row / 2u % 4u));
}

// Piece p of a tile: half a row, eight elements.
fn fetch_x(p: u32, m0: u32, k: u32) -> Raw {
    var raw: Raw;
    if (p < 2u * TM) { raw = load_x_words(m0 + p / 2u, k + 8u * (p % 2u)); }
    return raw;
}

fn fetch_w(p: u32, n0: u32, k: u32) -> Raw {
    var raw: Raw;
    let i = k + 8u * (p % 2u);
    if (p < 2u * TN && n0 + p / 2u < ROWS && i < K) { raw = load_weights(n0 + p / 2u, i); }
    return raw;
}

fn stage_x(p: u32, raw: Raw) {
    if (p >= 2u * TM) { return; }
    let e = decode_x(raw);
    xs[slot(p / 2u, 2u * (p % 2u))] = e.low;
    xs[slot(p / 2u, 2u * (p % 2u) + 1u)] = e.high;
}

fn stage_w(p: u32, raw: Raw, k: u32) {
    if (p >= 2u * TN) { return; }
    let e = decode_weights(raw, k + 8u * (p % 2u));
    ws[slot(p / 2u, 2u * (p % 2u))] = e.low;
    ws[slot(p / 2u, 2u * (p % 2u) + 1u)] = e.high;
}

// Sums of four rows and one column: four elements of each row, transposed, times four of W.
fn add(sums: vec4<f32>, rows: mat4x4<f32>, w: vec4<f32>) -> vec4<f32> {
    let low = fma(rows[1], vec4<f32>(w.y), fma(rows[0], vec4<f32>(w.x), sums));
    return fma(rows[3], vec4<f32>(w.w), fma(rows[2], vec4<f32>(w.z), low));
}

fn put_one(at: u32, sum: f32) {
    y[at] = sum + select(0.0, y[at], BETA == BETA_1);
}

// Stores one column of four rows LINES apart.
fn put(m: u32, n: u32, sums: vec4<f32>) {
    if (n >= ROWS) { return; }
    let row = Y_OFFSET + ROWS + Y_AFTER;
    let at = m * row + Y_OFFSET + n;
    if (m < N_TOKENS) { put_one(at, sums.x); }
    if (m + LINES < N_TOKENS) { put_one(at + LINES * row, sums.y); }
    if (m + 2u * LINES < N_TOKENS) { put_one(at + 2u * LINES * row, sums.z); }
    if (m + 3u * LINES < N_TOKENS) { put_one(at + 3u * LINES * row, sums.w); }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, groups);
    let tiles = (N_TOKENS + TM - 1u) / TM;
    let m0 = group % tiles * TM;
    let n0 = group / tiles * TN;
    let column = lid % COLUMNS;
    let line = lid / COLUMNS;
    // The swizzle is the same for all rows of an invocation: they lie a multiple of 8 apart.
    let x_swizzle = line / 2u % 4u;
    let w_swizzle = column / 2u % 4u;
    var low0 = vec4<f32>(0.0);
    var high0 = vec4<f32>(0.0);
    var low1 = vec4<f32>(0.0);
    var high1 = vec4<f32>(0.0);
    var low2 = vec4<f32>(0.0);
    var high2 = vec4<f32>(0.0);
    var low3 = vec4<f32>(0.0);
    var high3 = vec4<f32>(0.0);
    var low4 = vec4<f32>(0.0);
    var high4 = vec4<f32>(0.0);
    var low5 = vec4<f32>(0.0);
    var high5 = vec4<f32>(0.0);
    var low6 = vec4<f32>(0.0);
    var high6 = vec4<f32>(0.0);
    var low7 = vec4<f32>(0.0);
    var high7 = vec4<f32>(0.0);
    var x0 = fetch_x(lid, m0, 0u);
    var x1 = fetch_x(lid + WG, m0, 0u);
    var w0 = fetch_w(lid, n0, 0u);
    var w1 = fetch_w(lid + WG, n0, 0u);
    for (var k = 0u; k < K; k += 16u) {
        stage_x(lid, x0);
        stage_w(lid, w0, k);
        if (WG < 2u * TM) { stage_x(lid + WG, x1); }
        if (WG < 2u * TN) { stage_w(lid + WG, w1, k); }
        // What two loads an invocation do not cover is not fetched ahead.
        for (var p = lid + 2u * WG; p < 2u * TM; p += WG) { stage_x(p, fetch_x(p, m0, k)); }
        for (var p = lid + 2u * WG; p < 2u * TN; p += WG) { stage_w(p, fetch_w(p, n0, k), k); }
        workgroupBarrier();
        // Past the last tile nothing is loaded.
        x0 = fetch_x(lid, m0, k + 16u);
        w0 = fetch_w(lid, n0, k + 16u);
        if (WG < 2u * TM) { x1 = fetch_x(lid + WG, m0, k + 16u); }
        if (WG < 2u * TN) { w1 = fetch_w(lid + WG, n0, k + 16u); }
        for (var j = 0u; j < 4u; j++) {
            let a = 4u * line + (j ^ x_swizzle);
            let b = 4u * column + (j ^ w_swizzle);
            let low = transpose(mat4x4<f32>(
                xs[a], xs[a + 4u * LINES], xs[a + 8u * LINES], xs[a + 12u * LINES],
            ));
            var high = low;
            if (RM > 4u) {
                high = transpose(mat4x4<f32>(
                    xs[a + 16u * LINES], xs[a + 20u * LINES], xs[a + 24u * LINES], xs[a + 28u * LINES],
                ));
            }
            let w_0 = ws[b];
            low0 = add(low0, low, w_0);
            if (RM > 4u) { high0 = add(high0, high, w_0); }
            let w_1 = ws[b + 4u * COLUMNS];
            low1 = add(low1, low, w_1);
            if (RM > 4u) { high1 = add(high1, high, w_1); }
            let w_2 = ws[b + 8u * COLUMNS];
            low2 = add(low2, low, w_2);
            if (RM > 4u) { high2 = add(high2, high, w_2); }
            let w_3 = ws[b + 12u * COLUMNS];
            low3 = add(low3, low, w_3);
            if (RM > 4u) { high3 = add(high3, high, w_3); }
            let w_4 = ws[b + 16u * COLUMNS];
            low4 = add(low4, low, w_4);
            if (RM > 4u) { high4 = add(high4, high, w_4); }
            let w_5 = ws[b + 20u * COLUMNS];
            low5 = add(low5, low, w_5);
            if (RM > 4u) { high5 = add(high5, high, w_5); }
            let w_6 = ws[b + 24u * COLUMNS];
            low6 = add(low6, low, w_6);
            if (RM > 4u) { high6 = add(high6, high, w_6); }
            let w_7 = ws[b + 28u * COLUMNS];
            low7 = add(low7, low, w_7);
            if (RM > 4u) { high7 = add(high7, high, w_7); }
        }
        workgroupBarrier();
    }
    put(m0 + line, n0 + column, low0);
    put(m0 + line, n0 + column + COLUMNS, low1);
    put(m0 + line, n0 + column + 2u * COLUMNS, low2);
    put(m0 + line, n0 + column + 3u * COLUMNS, low3);
    put(m0 + line, n0 + column + 4u * COLUMNS, low4);
    put(m0 + line, n0 + column + 5u * COLUMNS, low5);
    put(m0 + line, n0 + column + 6u * COLUMNS, low6);
    put(m0 + line, n0 + column + 7u * COLUMNS, low7);
    if (RM > 4u) {
        put(m0 + line + 4u * LINES, n0 + column, high0);
        put(m0 + line + 4u * LINES, n0 + column + COLUMNS, high1);
        put(m0 + line + 4u * LINES, n0 + column + 2u * COLUMNS, high2);
        put(m0 + line + 4u * LINES, n0 + column + 3u * COLUMNS, high3);
        put(m0 + line + 4u * LINES, n0 + column + 4u * COLUMNS, high4);
        put(m0 + line + 4u * LINES, n0 + column + 5u * COLUMNS, high5);
        put(m0 + line + 4u * LINES, n0 + column + 6u * COLUMNS, high6);
        put(m0 + line + 4u * LINES, n0 + column + 7u * COLUMNS, high7);
    }
}
