// The first TOP_K rows of a matrix: each workgroup sorts its group_rows() rows (a multiple of 4, at most
// 1024) in workgroup memory and stores a list, lists are merged, the last stage adds what earlier parts
// of the matrix left.
// import: sort/key, sort/list, sort/merge
// requires: override FIRST_ROW, ROWS, WG: u32
// requires: var lists: array<vec2<u32>>
// requires: var top_indices: array<u32>
// requires: var top_values: array<f32>
// requires: fn group_rows() -> u32
override PART: u32; // which part of the matrix
override TOP_K: u32; // at most 64
fn list_length() -> u32 { return TOP_K; }

fn row_groups() -> u32 { return (ROWS + group_rows() - 1u) / group_rows(); }

fn list_count() -> u32 { return row_groups(); }

fn sorted_rows() -> u32 { return power_of_two_from(max(group_rows(), TOP_K)); }

fn clear_rows(lid: u32) {
    for (var s = lid; s < sorted_rows(); s += WG) { list_entries[s] = vec2<u32>(0u); }
    workgroupBarrier();
}

fn entry_of(logit: f32, row: u32) -> vec2<u32> {
    return vec2<u32>(sort_key(canonical(logit)), FIRST_ROW + row);
}

// Sorts a workgroup's rows and notes the first.
fn store_group_list(lid: u32, group: u32) {
    first_slots(lid, sorted_rows(), list_slots());
    if (group >= row_groups()) { return; }
    for (var s = lid; s < TOP_K; s += WG) { lists[group * TOP_K + s] = list_entries[s]; }
}

fn merge_lists_last(lid: u32) {
    merge_all(lid);
    if (PART >= PART_MIDDLE) {
        for (var s = lid; s < TOP_K; s += WG) {
            var entry = vec2<u32>(0u);
            if (top_indices[s] != 0xffffffffu) {
                entry = vec2<u32>(sort_key(canonical(top_values[s])), top_indices[s]);
            }
            list_entries[TOP_K + s] = entry;
        }
        let count = power_of_two_from(2u * TOP_K);
        for (var s = 2u * TOP_K + lid; s < count; s += WG) { list_entries[s] = vec2<u32>(0u); }
        sort_slots(lid, count);
    }
    for (var s = lid; s < TOP_K; s += WG) {
        let entry = list_entries[s];
        // Fewer rows than TOP_K: the rest is marked.
        top_values[s] = select(-3.4028234e38, value_of(entry.x), entry.x > 0u);
        top_indices[s] = select(0xffffffffu, entry.y, entry.x > 0u);
    }
}
