// Activations in workgroup memory, TILE chunks (see planes) of X_COLUMNS vectors at a time. Lanes
// that take neighbouring chunks read x 128 bytes apart, all from the same banks of a cache or of
// workgroup memory; so a chunk has one vec4 more than it needs, and eight lanes meet eight banks.
// In the one more lies the chunk's sum. Needs planes, x_four and WG.
override TILE: u32 = 64u;
override X_COLUMNS: u32 = 1u;
// As x_slot has it: five vec4 a chunk of q8_0, nine otherwise.
override X_SLOTS: u32 = TILE * X_COLUMNS * (5u + 4u * min(WEIGHT - 3u, 1u));
var<workgroup> xs: array<vec4<f32>, X_SLOTS>;

fn x_slot(column: u32, c: u32) -> u32 {
    return (column * TILE + c) * (chunk_elements() / 4u + 1u);
}

// Fills the tile of chunks `tile` to `tile` + TILE from vectors `col` on. All invocations of the
// workgroup, `lid` of them below WG; nobody reads the tile before.
fn stage_x(lid: u32, col: u32, tile: u32) {
    let fours = chunk_elements() / 4u;
    let count = min(TILE, row_chunks() - tile);
    for (var column = 0u; column < X_COLUMNS; column++) {
        for (var i = lid; i < count * fours; i += WG) {
            xs[x_slot(column, i / fours) + i % fours] = x_four(col + column, tile * fours + i);
        }
    }
    workgroupBarrier();
    if (offset() != 0.0) {
        for (var c = lid; c < count; c += WG) {
            let s = x_slot(0u, c);
            let all = xs[s] + xs[s + 1u] + xs[s + 2u] + xs[s + 3u]
                + (xs[s + 4u] + xs[s + 5u] + xs[s + 6u] + xs[s + 7u]);
            xs[s + 8u].x = total(all);
        }
        workgroupBarrier();
    }
}

// Chunk c of the tile.
fn load_x(c: u32) -> XChunk {
    let s = x_slot(0u, c);
    var v: XChunk;
    v.a = xs[s];
    v.b = xs[s + 1u];
    v.c = xs[s + 2u];
    v.d = xs[s + 3u];
    if (WEIGHT != 3u) {
        v.e = xs[s + 4u];
        v.f = xs[s + 5u];
        v.g = xs[s + 6u];
        v.h = xs[s + 7u];
    }
    if (offset() != 0.0) { v.sum = xs[s + 8u].x; }
    return v;
}
