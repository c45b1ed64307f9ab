// attention_decode/tiled_large: one workgroup a KV head, as large a tile as workgroup memory holds.
//
// Idea: all query heads of a KV head share each tile, so K and V are read once, and a tile of up to
// 48 KiB needs few barriers. Needs more than the 16 KiB every adapter has; no subgroups. Online
// softmax (arXiv 1805.02867).
// import: attention/parts/tiled_heads
override WG: u32 = 256u;
override TILE: u32 = 32u; // slots in workgroup memory

@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;
