// The first entries of a stream of (key, index), in order: larger keys first, of equal keys the
// lower index. The list lies in workgroup memory; key 0 is no entry.
// requires: override WG: u32
const LIST_ENTRIES: u32 = 1024u;
var<workgroup> list_entries: array<vec2<u32>, LIST_ENTRIES>;

fn ahead(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

fn power_of_two_from(n: u32) -> u32 {
    return 1u << (32u - countLeadingZeros(n - 1u));
}

// Puts slots i and j in order, or in the reverse of it.
fn order(i: u32, j: u32, forward: bool) {
    let a = list_entries[i];
    let b = list_entries[j];
    if (ahead(b, a) == forward) {
        list_entries[i] = b;
        list_entries[j] = a;
    }
}

// Sorts each `run` of the first `count` slots, every other one backwards; both powers of two
// (Batcher's bitonic sort). They were written since the last barrier.
fn sort_runs(lid: u32, count: u32, run: u32) {
    workgroupBarrier();
    for (var sorted = 2u; sorted <= run; sorted *= 2u) {
        for (var stride = sorted / 2u; stride > 0u; stride /= 2u) {
            for (var pair = lid; pair < count / 2u; pair += WG) {
                let i = 2u * pair - (pair & (stride - 1u));
                order(i, i + stride, (i & sorted) == 0u);
            }
            workgroupBarrier();
        }
    }
}

// Sorts all of the first `count` slots.
fn sort_slots(lid: u32, count: u32) { sort_runs(lid, count, count); }

// Of sorted runs, every other one backwards, the first `run` entries come to the front, in order.
// Slot by slot the one ahead of two such runs is among the first of both, and what comes out rises
// and falls once: it takes no sort, only its last pass. Slots were written since the last barrier.
fn join_runs(lid: u32, count: u32, run: u32) {
    workgroupBarrier();
    for (var far = run; far < count; far *= 2u) {
        let left = count / (2u * far) * run;
        for (var s = lid; s < left; s += WG) {
            let i = s / run * 2u * far + s % run;
            let other = list_entries[i + far];
            if (ahead(other, list_entries[i])) { list_entries[i] = other; }
        }
        workgroupBarrier();
        for (var stride = run / 2u; stride > 0u; stride /= 2u) {
            for (var pair = lid; pair < left / 2u; pair += WG) {
                let which = pair / (run / 2u);
                let within = pair % (run / 2u);
                let i = which * 2u * far + 2u * within - (within & (stride - 1u));
                order(i, i + stride, which % 2u == 0u);
            }
            workgroupBarrier();
        }
    }
}

// The first `run` of the first `count` slots come to the front, in order.
fn first_slots(lid: u32, count: u32, run: u32) {
    sort_runs(lid, count, run);
    join_runs(lid, count, run);
}
