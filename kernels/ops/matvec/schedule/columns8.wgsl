// Eight rows a workgroup for up to eight vectors. Sums are named vectors, so all of them stay in
// registers: of each vector one of rows 0 to 3 and one of rows 4 to 7. The workgroup's subgroups split K
// and meet once in workgroup memory.
//
// A subgroup adds up 64 sums. Lanes that differ in one bit first share the sums between them, each adding up
// half of them, three times; then a lane has one vector's sums and adds those of every eighth lane.
// Subgroups have eight lanes at least.
// import: grid
// requires: type Chunk
// requires: type XChunk
// requires: override N_VECTORS: u32
// requires: override ROWS: u32
// requires: var weights: array<vec4<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_column(column: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, held: f32)
// requires: fn y_at(column: u32, row: u32) -> u32
override WG: u32 = 128u;
override SLOTS: u32 = 16u * ((WG + 7u) / 8u);

var<workgroup> vector_slots: array<vec4<f32>, SLOTS>;

struct FourRows { w0: vec4<u32>, w1: vec4<u32>, w2: vec4<u32>, w3: vec4<u32> }

// Four sums of each vector.
struct Sums {
    a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>,
    e: vec4<f32>, f: vec4<f32>, g: vec4<f32>, h: vec4<f32>,
}

fn four_products(w: FourRows, v: XChunk) -> vec4<f32> {
    return vec4<f32>(
        dot_chunk(w.w0, v), dot_chunk(w.w1, v), dot_chunk(w.w2, v), dot_chunk(w.w3, v),
    );
}

// A lane keeps `first`, or `second` where `other`, and adds what the lane that differs in `bit` has of it.
fn shared_sum(first: vec4<f32>, second: vec4<f32>, bit: u32, other: bool) -> vec4<f32> {
    let kept = select(first, second, other);
    return kept + subgroupShuffleXor(select(second, first, other), bit);
}

// The subgroup's sums of vector summed_vector(lane).
fn summed(s: Sums, lane: u32, size: u32) -> vec4<f32> {
    let one = (lane & 1u) != 0u;
    let two = (lane & 2u) != 0u;
    let ae = shared_sum(s.a, s.e, 1u, one);
    let bf = shared_sum(s.b, s.f, 1u, one);
    let cg = shared_sum(s.c, s.g, 1u, one);
    let dh = shared_sum(s.d, s.h, 1u, one);
    let aceg = shared_sum(ae, cg, 2u, two);
    let bdfh = shared_sum(bf, dh, 2u, two);
    var all = shared_sum(aceg, bdfh, 4u, (lane & 4u) != 0u);
    for (var step = 8u; step < size; step *= 2u) { all += subgroupShuffleXor(all, step); }
    return all;
}

fn summed_vector(lane: u32) -> u32 {
    return 4u * (lane & 1u) + (lane & 2u) + ((lane >> 2u) & 1u);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32,
) {
    let first = 8u * flat_index(workgroup, groups, (ROWS - 1u) / 8u + 1u);
    // FourRows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    let base0 = min(first, last) * row_chunks();
    let base1 = min(first + 1u, last) * row_chunks();
    let base2 = min(first + 2u, last) * row_chunks();
    let base3 = min(first + 3u, last) * row_chunks();
    let base4 = min(first + 4u, last) * row_chunks();
    let base5 = min(first + 5u, last) * row_chunks();
    let base6 = min(first + 6u, last) * row_chunks();
    let base7 = min(first + 7u, last) * row_chunks();
    var low: Sums;
    var high: Sums;
    for (var c = lid; c < row_chunks(); c += WG) {
        let w = FourRows(weights[base0 + c], weights[base1 + c], weights[base2 + c], weights[base3 + c]);
        let u = FourRows(weights[base4 + c], weights[base5 + c], weights[base6 + c], weights[base7 + c]);
        let v0 = load_x_column(0u, c);
        low.a += four_products(w, v0);
        high.a += four_products(u, v0);
        if (N_VECTORS > 1u) {
            let v = load_x_column(1u, c);
            low.b += four_products(w, v);
            high.b += four_products(u, v);
        }
        if (N_VECTORS > 2u) {
            let v = load_x_column(2u, c);
            low.c += four_products(w, v);
            high.c += four_products(u, v);
        }
        if (N_VECTORS > 3u) {
            let v = load_x_column(3u, c);
            low.d += four_products(w, v);
            high.d += four_products(u, v);
        }
        if (N_VECTORS > 4u) {
            let v = load_x_column(4u, c);
            low.e += four_products(w, v);
            high.e += four_products(u, v);
        }
        if (N_VECTORS > 5u) {
            let v = load_x_column(5u, c);
            low.f += four_products(w, v);
            high.f += four_products(u, v);
        }
        if (N_VECTORS > 6u) {
            let v = load_x_column(6u, c);
            low.g += four_products(w, v);
            high.g += four_products(u, v);
        }
        if (N_VECTORS > 7u) {
            let v = load_x_column(7u, c);
            low.h += four_products(w, v);
            high.h += four_products(u, v);
        }
    }
    let rows0 = summed(low, lane, size);
    let rows4 = summed(high, lane, size);
    if (lane < 8u) {
        let slot = 2u * (summed_vector(lane) * subgroups + subgroup);
        vector_slots[slot] = rows0;
        vector_slots[slot + 1u] = rows4;
    }
    workgroupBarrier();
    for (var i = lid; i < 8u * N_VECTORS; i += WG) {
        let column = i / 8u;
        var total = 0.0;
        for (var s = 0u; s < subgroups; s++) {
            total += vector_slots[2u * (column * subgroups + s) + i % 8u / 4u][i % 4u];
        }
        let row = first + i % 8u;
        if (row < ROWS) { store_y(y_at(column, row), total, old_y(y_at(column, row))); }
    }
}
