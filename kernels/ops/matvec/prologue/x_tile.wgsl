// Activations in workgroup memory, TILE chunks of an SoA row of X_VECTORS vectors at a time. Lanes
// that take neighbouring chunks read x 128 bytes apart, all from the same banks of a cache or of
// workgroup memory; so a chunk has one vec4 more than it needs, and eight lanes meet eight banks.
// In the one more lies the chunk's sum.
// import: matvec/rows/soa
// requires: override WG: u32
// requires: fn x_four(vector: u32, i: u32) -> vec4<f32>
override TILE: u32 = 64u;
override X_VECTORS: u32 = 1u;
// As x_slot has it: five vec4 a chunk of q8_0, nine otherwise.
override X_SLOTS: u32 = TILE * X_VECTORS * select(9u, 5u, WEIGHT == Q8_0);
var<workgroup> x_tile: array<vec4<f32>, X_SLOTS>;

fn x_slot(vector: u32, c: u32) -> u32 {
    return (vector * TILE + c) * (soa_chunk_elements() / 4u + 1u);
}

// Fills the tile of chunks `tile` to `tile` + TILE from vector `first_vector` on. All invocations of the
// workgroup, `lid` of them below WG; nobody reads the tile before.
fn stage_x_tile(lid: u32, first_vector: u32, tile: u32) {
    let fours = soa_chunk_elements() / 4u;
    let count = min(TILE, soa_row_chunks() - tile);
    for (var vector = 0u; vector < X_VECTORS; vector++) {
        for (var i = lid; i < count * fours; i += WG) {
            x_tile[x_slot(vector, i / fours) + i % fours] = x_four(first_vector + vector, tile * fours + i);
        }
    }
    workgroupBarrier();
    if (quant_offset() != 0.0) {
        for (var c = lid; c < count; c += WG) {
            let s = x_slot(0u, c);
            let all = x_tile[s] + x_tile[s + 1u] + x_tile[s + 2u] + x_tile[s + 3u]
                + (x_tile[s + 4u] + x_tile[s + 5u] + x_tile[s + 6u] + x_tile[s + 7u]);
            x_tile[s + 8u].x = total(all);
        }
        workgroupBarrier();
    }
}

// Chunk c of the tile.
fn load_x_tile(c: u32) -> SoaX {
    let s = x_slot(0u, c);
    var v: SoaX;
    v.a = x_tile[s];
    v.b = x_tile[s + 1u];
    v.c = x_tile[s + 2u];
    v.d = x_tile[s + 3u];
    if (WEIGHT != Q8_0) {
        v.e = x_tile[s + 4u];
        v.f = x_tile[s + 5u];
        v.g = x_tile[s + 6u];
        v.h = x_tile[s + 7u];
    }
    if (quant_offset() != 0.0) { v.sum = x_tile[s + 8u].x; }
    return v;
}
