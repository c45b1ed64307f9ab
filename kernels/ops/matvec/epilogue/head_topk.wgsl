// Of a head's logits the first TOP_K: they stay in workgroup memory and are sorted there; the stages
// `merge` and `choose` merge the workgroups' lists.
// entry: rows
// import: matvec/epilogue/topk, sort/list, sort/merge
// requires: override WG: u32
fn begin_rows(lid: u32) { clear_rows(lid); }

fn push_logit(row: u32, at: u32, logit: f32) { list_entries[at] = entry_of(logit, row); }

fn end_rows(lid: u32, group: u32) { store_group_list(lid, group); }

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
