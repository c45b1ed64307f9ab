// The heads of `new_token`, two a subgroup at a time. All loads are under way before the first sum, so a
// workgroup that also makes key and value waits no second time. `size` is no member of Invocation: a struct
// with members that differ between lanes counts as not uniform, and so would the loop.
// import: attention/parts/new_token, attention/parts/invocation, attention/parts/split, rope/head_scale
// import: rope/heads
// requires: override SG_MIN, WG: u32
const MOST_QUADS: u32 = 16u;
override QUADS: u32 = (HEAD_DIM / 4u + SG_MIN - 1u) / SG_MIN; // of a head to a lane

fn make_heads(part: SplitPart, count: u32, position: u32, at: Invocation, size: u32) {
    let subgroups = WG / size;
    for (var first = 0u; first < count; first += 2u * subgroups) {
        let j = first + at.subgroup;
        let k = j + subgroups;
        let both = first + subgroups < count;
        // Without a head of its own a subgroup repeats the last one and drops it.
        let head_j = head_of(part, min(j, HEADS + 1u));
        let head_k = head_of(part, min(k, HEADS + 1u));
        var of_j: array<QuadParts, MOST_QUADS>;
        var of_k: array<QuadParts, MOST_QUADS>;
        var sums = vec2<f32>(0.0);
        for (var q = 0u; q < QUADS; q++) {
            let i = at.lane + q * size;
            if (i < HEAD_DIM / 4u) {
                of_j[q] = load_quad_parts(head_j, i, position);
                if (both) { of_k[q] = load_quad_parts(head_k, i, position); }
            }
        }
        for (var q = 0u; q < QUADS; q++) {
            if (at.lane + q * size < HEAD_DIM / 4u) {
                sums += vec2<f32>(quad_squares(of_j[q].v), quad_squares(of_k[q].v));
            }
        }
        var scales = vec2<f32>(1.0);
        if (QK_NORM == NORM_RMS) {
            sums = subgroupAdd(sums);
            scales = vec2<f32>(head_scale(sums.x), head_scale(sums.y));
        }
        for (var q = 0u; q < QUADS; q++) {
            let i = at.lane + q * size;
            if (i < HEAD_DIM / 4u) {
                if (j < count) { make_quad(j, head_j, i, of_j[q], scales.x); }
                if (k < count) { make_quad(k, head_k, i, of_k[q], scales.y); }
            }
        }
    }
}
