// dequant/multicol: one invocation the same sixteen bytes of up to four rows.
//
//   y[r][k] = W[r][k]        W: (ROWS, K) SoA-repacked  y: (ROWS, K) f32 or f16, tight
//
// Idea: where a weight's fields lie is found once for all rows: they differ by a stride. Rows are
// far apart, so the stores of a lane go to four streams, each of neighbouring lanes.
// import: dequant/parts/chunk, dequant/parts/packed, format/weight_four, grid
override WG: u32 = 256u;
override PER: u32 = 4u; // rows of an invocation, 1 to 4

@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

// Rows past the end repeat the last one: loads stay inside, results are dropped.
fn make(row: u32, k: u32) -> vec4<u32> {
    let base = min(row, ROWS - 1u) * ROW_BYTES;
    let block = k / BLOCK;
    let e = k % BLOCK;
    return chunk_of(base, block, e, scale_addend(base, block, e));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    let width = K / EACH;
    let row = i / width * PER;
    if (row >= ROWS) { return; }
    let k = i % width * EACH;
    let a = make(row, k);
    var b = a;
    var c = a;
    var d = a;
    if (PER > 1u) { b = make(row + 1u, k); }
    if (PER > 2u) { c = make(row + 2u, k); }
    if (PER > 3u) { d = make(row + 3u, k); }
    let at = row * width + i % width;
    y[at] = a;
    if (PER > 1u && row + 1u < ROWS) { y[at + width] = b; }
    if (PER > 2u && row + 2u < ROWS) { y[at + 2u * width] = c; }
    if (PER > 3u && row + 3u < ROWS) { y[at + 3u * width] = d; }
}
