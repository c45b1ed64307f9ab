// The heads of `fresh`, one to a subgroup at a time.
fn make_heads(kv_head: u32, count: u32, position: u32, at: Invocation) {
    let subgroups = WG / at.size;
    for (var first = 0u; first < count; first += subgroups) {
        let j = first + at.subgroup;
        var scale = 1.0;
        if (NORM == 1u) {
            let head = head_of(kv_head, min(j, GROUP + 1u));
            var sum = 0.0;
            for (var i = at.lane; i < HEAD_DIM / 4u; i += at.size) { sum += squares(load_quad(head, i)); }
            scale = head_scale(subgroupAdd(sum));
        }
        if (j < count) {
            for (var i = at.lane; i < HEAD_DIM / 4u; i += at.size) {
                make_quad(kv_head, j, i, scale, position);
            }
        }
    }
}
