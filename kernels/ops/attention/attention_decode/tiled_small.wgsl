// attention_decode/tiled_small: one workgroup a query head, a small tile in workgroup memory.
//
//   y[h] = sum_t softmax_t(SCALE * q[h] . K[g][t]) * V[g][t]      g = h / Q_PER_KV
//   q: (heads, HEAD_DIM) f32   y: the same, f32 or f16   caches: (KV_HEADS, KV_SIZE, HEAD_DIM)
//   t runs over min(position + 1, KV_SIZE) slots; a ring needs no order, softmax has none
//
// Idea: K and V come in coalesced 16-byte loads, eight KiB of them at a time, whatever the head is;
// what each invocation then needs of them it finds in workgroup memory. Runs in 16 KiB of it and
// without subgroups: what every browser has. Online softmax (arXiv 1805.02867).
// import: attention/parts/attended, attention/parts/tiled
override Q_PER_KV: u32;
override KV_HEADS: u32;
override HEAD_DIM: u32; // whole chunks; ROWS of them at most WG
override KV_SIZE: u32;
override SCALE: f32;
override WG: u32 = 64u;
override ROWS: u32 = 1u; // query heads of a workgroup
override TILE: u32 = 8u; // slots in workgroup memory
override LANES: u32 = 4u; // invocations a score

@group(0) @binding(0) var<storage, read> state: array<u32>;
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> k_cache: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> v_cache: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;

fn row_query(row: u32) -> u32 { return row * HEAD_DIM / 4u; }

fn row_output(row: u32) -> u32 { return row_query(row); }

fn row_slots(row: u32) -> vec2<u32> { return vec2<u32>(0u, attended()); }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    // Q_PER_KV is a multiple of ROWS.
    let first = workgroup.x * ROWS;
    attend_tiles(lid, first / Q_PER_KV, first, first + ROWS, 0u, attended());
}
