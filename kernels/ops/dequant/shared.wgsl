// dequant/shared: raw blocks staged in workgroup memory.
//
// Idea: blocks as in the file begin between words; eight of them are always whole sixteen bytes.
// TILE columns are loaded in sixteen-byte chunks, and taken apart where an unaligned word costs
// nothing. No subgroups, no repacking at load.
// import: dequant/parts/chunk, format/weight_four, grid
override WG: u32 = 256u;
override TILE: u32 = 2048u; // columns of a workgroup, a multiple of 2048: eight blocks of 256
override RAW: u32 = TILE / 256u * 17u; // chunks of the largest format: 256 of q8_0 are 272 bytes

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

var<workgroup> raw: array<vec4<u32>, RAW>;

fn packed_word(i: u32) -> u32 { return raw[i / 4u][i % 4u]; }
fn packed_chunk(i: u32) -> vec4<u32> { return raw[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let tiles = (K + TILE - 1u) / TILE;
    let group = group_index(workgroup, groups);
    let row = group / tiles;
    let tile = group % tiles;
    if (row >= ROWS) { return; }

    let row_chunks = ROW_BYTES / 16u;
    let tile_chunks = TILE / BLOCK * CODES_STEP / 16u;
    let begin = row * row_chunks + tile * tile_chunks;
    let count = min(tile_chunks, row_chunks - tile * tile_chunks);
    for (var i = lid; i < count; i += WG) { raw[i] = weights[begin + i]; }
    workgroupBarrier();

    let width = min(TILE, K - tile * TILE) / EACH;
    let at = (row * K + tile * TILE) / EACH;
    for (var i = lid; i < width; i += WG) {
        let block = i * EACH / BLOCK;
        let e = i * EACH % BLOCK;
        y[at + i] = chunk_of(0u, block, e, scale_addend(0u, block, e));
    }
}
