// The heads of `new_token`, one after the other by the whole workgroup; no subgroups.
// import: attention/parts/new_token, attention/parts/invocation, attention/parts/split, reduce/tree
// import: rope/head_scale, rope/heads
// requires: override WG: u32

fn make_heads(part: SplitPart, count: u32, position: u32, at: Invocation, size: u32) {
    for (var j = 0u; j < count; j++) {
        let head = head_of(part, j);
        var scale = 1.0;
        if (QK_NORM == NORM_RMS) {
            var sum = 0.0;
            for (var i = at.index; i < HEAD_DIM / 4u; i += WG) { sum += quad_squares(load_quad(head, i)); }
            scale = head_scale(workgroup_sum(at.index, sum));
        }
        for (var i = at.index; i < HEAD_DIM / 4u; i += WG) {
            make_quad(j, head, i, load_quad_parts(head, i, position), scale);
        }
    }
}
