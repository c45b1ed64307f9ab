// Of a head's logits the best: each invocation keeps the best of its rows, a workgroup leaves one
// candidate, and the stage `choose` takes the best of those.
// entry: rows
// import: matvec/epilogue/argmax, step/choose, step/choose_workgroup
// requires: override FIRST_ROW, ROWS, WG: u32
// requires: fn group_rows() -> u32
var<private> best: Candidate;

fn candidates() -> u32 { return (ROWS + group_rows() - 1u) / group_rows(); }

fn begin_rows(lid: u32) { best = NOBODY; }

fn push_logit(row: u32, at: u32, logit: f32) {
    best = better(best, candidate(logit, FIRST_ROW + row));
}

fn end_rows(lid: u32, group: u32) {
    let all = workgroup_best(lid, best);
    if (lid == 0u && group < candidates()) { store_group_best(group, all); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, candidates()); }
