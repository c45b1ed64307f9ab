// The first entries of a stream of (key, index), in order: larger keys first, of equal keys the
// lower index. The list lies in workgroup memory; key 0 is no entry.
const SLOTS: u32 = 1024u;
var<workgroup> slots: array<vec2<u32>, SLOTS>;

fn ahead(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

fn power_of_two_from(n: u32) -> u32 {
    return 1u << (32u - countLeadingZeros(n - 1u));
}

// Sorts the first `count` slots, a power of two (Batcher's bitonic sort). They were written since
// the last barrier.
fn sort_slots(lid: u32, count: u32) {
    workgroupBarrier();
    for (var run = 2u; run <= count; run *= 2u) {
        for (var stride = run / 2u; stride > 0u; stride /= 2u) {
            for (var pair = lid; pair < count / 2u; pair += WG) {
                let i = 2u * pair - (pair & (stride - 1u));
                let a = slots[i];
                let b = slots[i + stride];
                if (ahead(b, a) == ((i & run) == 0u)) {
                    slots[i] = b;
                    slots[i + stride] = a;
                }
            }
            workgroupBarrier();
        }
    }
}
