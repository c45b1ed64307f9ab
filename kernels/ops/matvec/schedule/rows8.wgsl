// Eight rows a workgroup for up to eight vectors at a time. A chunk of each row becomes floats once and meets every
// vector, one fma a product. Sums are named values, so all of them stay in registers. The workgroup's
// subgroups split K and meet once in workgroup memory.
//
// A subgroup adds up 64 sums. Lanes that differ in one bit first share the sums between them, each adding up
// half of them, three times; then a lane has one vector's sums and adds those of every eighth lane.
// Subgroups have eight lanes at least.
// import: grid, matvec/epilogue/rows_of_y, matvec/schedule/passes
// requires: type Chunk, Eight, XChunk
// requires: override N_VECTORS, ROWS: u32
// requires: fn load_chunk(row: u32, c: u32) -> Chunk
// requires: fn load_vector_chunk(vector: u32, c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
// requires: fn weights_of(chunk: Chunk) -> Eight
override WG: u32 = 128u;
override SLOTS: u32 = 16u * ((WG + 7u) / 8u);

var<workgroup> vector_slots: array<vec4<f32>, SLOTS>;

// Sums of rows 0 to 3 and of rows 4 to 7, of one vector.
struct Sums { low: vec4<f32>, high: vec4<f32> }

// One weight of each of those rows.
struct Weights { low: vec4<f32>, high: vec4<f32> }

// Eight weights of each row.
struct EightRows { k0: Weights, k1: Weights, k2: Weights, k3: Weights, k4: Weights, k5: Weights, k6: Weights, k7: Weights }

fn load_eight(first: u32, last: u32, chunk: u32) -> EightRows {
    let p0 = load_chunk(min(first, last), chunk);
    let p1 = load_chunk(min(first + 1u, last), chunk);
    let p2 = load_chunk(min(first + 2u, last), chunk);
    let p3 = load_chunk(min(first + 3u, last), chunk);
    let p4 = load_chunk(min(first + 4u, last), chunk);
    let p5 = load_chunk(min(first + 5u, last), chunk);
    let p6 = load_chunk(min(first + 6u, last), chunk);
    let p7 = load_chunk(min(first + 7u, last), chunk);
    let a = weights_of(p0);
    let b = weights_of(p1);
    let c = weights_of(p2);
    let d = weights_of(p3);
    let e = weights_of(p4);
    let f = weights_of(p5);
    let g = weights_of(p6);
    let h = weights_of(p7);
    return EightRows(
        Weights(vec4<f32>(a.low.x, b.low.x, c.low.x, d.low.x), vec4<f32>(e.low.x, f.low.x, g.low.x, h.low.x)),
        Weights(vec4<f32>(a.low.y, b.low.y, c.low.y, d.low.y), vec4<f32>(e.low.y, f.low.y, g.low.y, h.low.y)),
        Weights(vec4<f32>(a.low.z, b.low.z, c.low.z, d.low.z), vec4<f32>(e.low.z, f.low.z, g.low.z, h.low.z)),
        Weights(vec4<f32>(a.low.w, b.low.w, c.low.w, d.low.w), vec4<f32>(e.low.w, f.low.w, g.low.w, h.low.w)),
        Weights(vec4<f32>(a.high.x, b.high.x, c.high.x, d.high.x), vec4<f32>(e.high.x, f.high.x, g.high.x, h.high.x)),
        Weights(vec4<f32>(a.high.y, b.high.y, c.high.y, d.high.y), vec4<f32>(e.high.y, f.high.y, g.high.y, h.high.y)),
        Weights(vec4<f32>(a.high.z, b.high.z, c.high.z, d.high.z), vec4<f32>(e.high.z, f.high.z, g.high.z, h.high.z)),
        Weights(vec4<f32>(a.high.w, b.high.w, c.high.w, d.high.w), vec4<f32>(e.high.w, f.high.w, g.high.w, h.high.w)),
    );
}

fn add_product(sum: Sums, w: Weights, x: f32) -> Sums {
    return Sums(fma(w.low, vec4<f32>(x), sum.low), fma(w.high, vec4<f32>(x), sum.high));
}

fn add_products(sum: Sums, w: EightRows, v: XChunk) -> Sums {
    let a = add_product(add_product(sum, w.k0, v.low.x), w.k1, v.low.y);
    let b = add_product(add_product(a, w.k2, v.low.z), w.k3, v.low.w);
    let c = add_product(add_product(b, w.k4, v.high.x), w.k5, v.high.y);
    return add_product(add_product(c, w.k6, v.high.z), w.k7, v.high.w);
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
    let group = flat_index(workgroup, groups, PASSES * ((ROWS - 1u) / 8u + 1u));
    let first = 8u * group_in_pass(group);
    let first_vector = first_in_pass(group);
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
        let w = load_eight(first, last, c);
        s0 = add_products(s0, w, load_vector_chunk(vector_in_pass(first_vector), c));
        if (PASS_VECTORS > 1u) { s1 = add_products(s1, w, load_vector_chunk(vector_in_pass(first_vector + 1u), c)); }
        if (PASS_VECTORS > 2u) { s2 = add_products(s2, w, load_vector_chunk(vector_in_pass(first_vector + 2u), c)); }
        if (PASS_VECTORS > 3u) { s3 = add_products(s3, w, load_vector_chunk(vector_in_pass(first_vector + 3u), c)); }
        if (PASS_VECTORS > 4u) { s4 = add_products(s4, w, load_vector_chunk(vector_in_pass(first_vector + 4u), c)); }
        if (PASS_VECTORS > 5u) { s5 = add_products(s5, w, load_vector_chunk(vector_in_pass(first_vector + 5u), c)); }
        if (PASS_VECTORS > 6u) { s6 = add_products(s6, w, load_vector_chunk(vector_in_pass(first_vector + 6u), c)); }
        if (PASS_VECTORS > 7u) { s7 = add_products(s7, w, load_vector_chunk(vector_in_pass(first_vector + 7u), c)); }
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
    for (var i = lid; i < 8u * PASS_VECTORS; i += WG) {
        let vector = i / 8u;
        var total = 0.0;
        for (var s = 0u; s < subgroups; s++) {
            total += vector_slots[2u * (vector * subgroups + s) + i % 8u / 4u][i % 4u];
        }
        let row = first + i % 8u;
        let at = y_at(first_vector + vector, row);
        if (row < ROWS && first_vector + vector < N_VECTORS) { store_y(at, total, old_y(at)); }
    }
}
