// attention_decode/tiled_small: one workgroup a query head, a small tile in workgroup memory.
//
// Idea: K and V come in coalesced 16-byte loads, eight KiB of them at a time, whatever the head is;
// what each invocation then needs of them it finds in workgroup memory. Runs in 16 KiB of it and
// without subgroups: what every browser has. Online softmax (arXiv 1805.02867).
// import: attention/parts/tiled_heads
override WG: u32 = 64u;
override TILE: u32 = 8u; // slots in workgroup memory

@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;
