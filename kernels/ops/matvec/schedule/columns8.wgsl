// Eight rows a workgroup for up to eight vectors. Four weights of each row become floats once and meet every
// vector, one fma a product; then the next four, so that fewer of them wait in registers. Sums are named
// values, so all of them stay in registers. The workgroup's subgroups split K and meet once in workgroup
// memory.
//
// A subgroup adds up 64 sums. Lanes that differ in one bit first share the sums between them, each adding up
// half of them, three times; then a lane has one vector's sums and adds those of every eighth lane.
// Subgroups have eight lanes at least.
// import: grid, matvec/epilogue/rows_of_y
// requires: type Chunk
// requires: type XChunk
// requires: override N_VECTORS: u32
// requires: override ROWS: u32
// requires: fn load_chunk(row: u32, c: u32) -> Chunk
// requires: fn load_x_column(column: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, held: f32)
// requires: fn weights_high(chunk: Chunk) -> vec4<f32>
// requires: fn weights_low(chunk: Chunk) -> vec4<f32>
override WG: u32 = 128u;
override SLOTS: u32 = 16u * ((WG + 7u) / 8u);

var<workgroup> vector_slots: array<vec4<f32>, SLOTS>;

// Sums of rows 0 to 3 and of rows 4 to 7, of one vector.
struct Sums { low: vec4<f32>, high: vec4<f32> }

// One weight of each of those rows.
struct Weights { low: vec4<f32>, high: vec4<f32> }

// Four weights of each row.
struct EightRows { k0: Weights, k1: Weights, k2: Weights, k3: Weights }

fn eight_rows(
    a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>,
    e: vec4<f32>, f: vec4<f32>, g: vec4<f32>, h: vec4<f32>,
) -> EightRows {
    return EightRows(
        Weights(vec4<f32>(a.x, b.x, c.x, d.x), vec4<f32>(e.x, f.x, g.x, h.x)),
        Weights(vec4<f32>(a.y, b.y, c.y, d.y), vec4<f32>(e.y, f.y, g.y, h.y)),
        Weights(vec4<f32>(a.z, b.z, c.z, d.z), vec4<f32>(e.z, f.z, g.z, h.z)),
        Weights(vec4<f32>(a.w, b.w, c.w, d.w), vec4<f32>(e.w, f.w, g.w, h.w)),
    );
}

fn add_product(sum: Sums, w: Weights, x: f32) -> Sums {
    return Sums(fma(w.low, vec4<f32>(x), sum.low), fma(w.high, vec4<f32>(x), sum.high));
}

fn add_products(sum: Sums, w: EightRows, v: vec4<f32>) -> Sums {
    return add_product(add_product(add_product(add_product(sum, w.k0, v.x), w.k1, v.y), w.k2, v.z), w.k3, v.w);
}

// A lane keeps `first`, or `second` where `other`, and adds what the lane that differs in `bit` has of it.
fn shared_sum(first: vec4<f32>, second: vec4<f32>, bit: u32, other: bool) -> vec4<f32> {
    let kept = select(first, second, other);
    return kept + subgroupShuffleXor(select(second, first, other), bit);
}

// Of sums of all eight vectors the subgroup's of vector summed_vector(lane).
fn vector_sums(
    s0: vec4<f32>, s1: vec4<f32>, s2: vec4<f32>, s3: vec4<f32>,
    s4: vec4<f32>, s5: vec4<f32>, s6: vec4<f32>, s7: vec4<f32>, lane: u32, size: u32,
) -> vec4<f32> {
    let one = (lane & 1u) != 0u;
    let two = (lane & 2u) != 0u;
    let s04 = shared_sum(s0, s4, 1u, one);
    let s15 = shared_sum(s1, s5, 1u, one);
    let s26 = shared_sum(s2, s6, 1u, one);
    let s37 = shared_sum(s3, s7, 1u, one);
    let even = shared_sum(s04, s26, 2u, two);
    let odd = shared_sum(s15, s37, 2u, two);
    var all = shared_sum(even, odd, 4u, (lane & 4u) != 0u);
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
    // Rows past the end repeat the last one: loads stay inside, results are dropped.
    let last = ROWS - 1u;
    var s0: Sums;
    var s1: Sums;
    var s2: Sums;
    var s3: Sums;
    var s4: Sums;
    var s5: Sums;
    var s6: Sums;
    var s7: Sums;
    for (var c = lid; c < row_chunks(); c += WG) {
        let p0 = load_chunk(min(first, last), c);
        let p1 = load_chunk(min(first + 1u, last), c);
        let p2 = load_chunk(min(first + 2u, last), c);
        let p3 = load_chunk(min(first + 3u, last), c);
        let p4 = load_chunk(min(first + 4u, last), c);
        let p5 = load_chunk(min(first + 5u, last), c);
        let p6 = load_chunk(min(first + 6u, last), c);
        let p7 = load_chunk(min(first + 7u, last), c);
        let low = eight_rows(
            weights_low(p0), weights_low(p1), weights_low(p2), weights_low(p3),
            weights_low(p4), weights_low(p5), weights_low(p6), weights_low(p7),
        );
        s0 = add_products(s0, low, load_x_column(0u, c).low);
        if (N_VECTORS > 1u) { s1 = add_products(s1, low, load_x_column(1u, c).low); }
        if (N_VECTORS > 2u) { s2 = add_products(s2, low, load_x_column(2u, c).low); }
        if (N_VECTORS > 3u) { s3 = add_products(s3, low, load_x_column(3u, c).low); }
        if (N_VECTORS > 4u) { s4 = add_products(s4, low, load_x_column(4u, c).low); }
        if (N_VECTORS > 5u) { s5 = add_products(s5, low, load_x_column(5u, c).low); }
        if (N_VECTORS > 6u) { s6 = add_products(s6, low, load_x_column(6u, c).low); }
        if (N_VECTORS > 7u) { s7 = add_products(s7, low, load_x_column(7u, c).low); }
        let high = eight_rows(
            weights_high(p0), weights_high(p1), weights_high(p2), weights_high(p3),
            weights_high(p4), weights_high(p5), weights_high(p6), weights_high(p7),
        );
        s0 = add_products(s0, high, load_x_column(0u, c).high);
        if (N_VECTORS > 1u) { s1 = add_products(s1, high, load_x_column(1u, c).high); }
        if (N_VECTORS > 2u) { s2 = add_products(s2, high, load_x_column(2u, c).high); }
        if (N_VECTORS > 3u) { s3 = add_products(s3, high, load_x_column(3u, c).high); }
        if (N_VECTORS > 4u) { s4 = add_products(s4, high, load_x_column(4u, c).high); }
        if (N_VECTORS > 5u) { s5 = add_products(s5, high, load_x_column(5u, c).high); }
        if (N_VECTORS > 6u) { s6 = add_products(s6, high, load_x_column(6u, c).high); }
        if (N_VECTORS > 7u) { s7 = add_products(s7, high, load_x_column(7u, c).high); }
    }
    let rows0 = vector_sums(
        s0.low, s1.low, s2.low, s3.low, s4.low, s5.low, s6.low, s7.low, lane, size,
    );
    let rows4 = vector_sums(
        s0.high, s1.high, s2.high, s3.high, s4.high, s5.high, s6.high, s7.high, lane, size,
    );
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
