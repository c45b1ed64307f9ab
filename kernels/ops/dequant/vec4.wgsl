// dequant/vec4: one invocation up to four stores of sixteen bytes.
//
//   y[r][k] = W[r][k]        W: (ROWS, K) SoA-repacked  y: (ROWS, K) f32 or f16, tight
//
// Idea: what is written outweighs what is read four to nine times, so the stores decide: in each of
// the PER rounds neighbouring lanes write neighbouring sixteen bytes. Planes put every code on a
// word and the scales of a superblock on sixteen bytes: a lane loads one word of quants (two for
// f16) and one chunk of scales that its neighbours share. All rounds load before the first store.
// import: dequant/parts/chunk, dequant/parts/packed, format/weight_four, grid
override WG: u32 = 256u;
override PER: u32 = 4u; // 1, 2 or 4

@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

fn chunks() -> u32 { return ROWS * (K / EACH); }

// Chunk i of y; beyond the end the last one, which is then not stored.
fn make(i: u32) -> vec4<u32> {
    let c = min(i, chunks() - 1u);
    let base = c / (K / EACH) * ROW_BYTES;
    let k = c % (K / EACH) * EACH;
    let block = k / BLOCK;
    let e = k % BLOCK;
    return chunk_of(base, block, e, scale_addend(base, block, e));
}

fn store(i: u32, chunk: vec4<u32>) {
    if (chunks() % (WG * PER) == 0u || i < chunks()) { y[i] = chunk; }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, groups);
    if (group * WG * PER >= chunks()) { return; }
    let i = group * WG * PER + lid;
    let a = make(i);
    if (PER == 1u) {
        store(i, a);
        return;
    }
    let b = make(i + WG);
    if (PER == 2u) {
        store(i, a);
        store(i + WG, b);
        return;
    }
    let c = make(i + 2u * WG);
    let d = make(i + 3u * WG);
    store(i, a);
    store(i + WG, b);
    store(i + 2u * WG, c);
    store(i + 3u * WG, d);
}
