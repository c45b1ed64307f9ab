// lm_head_topk/naive: one invocation a row, one weight at a time.
//
//   (top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), larger y first, of equal y the
//   lower index; y[r] = sum_k W[r][k] * x[k], and of the parts of W before, see PART
//   W: (ROWS, K) any format  x: (K) f32 or f16  top_*: (TOP_K)
//   lists: (groups of rows, TOP_K) of (key, index)  merged: (MERGERS, TOP_K)
//
// Idea: the formula; logits stay in workgroup memory, sorted there.
// import: format/load_one, format/weight_at, grid, matvec/epilogue/topk, sort/list, sort/merge
override ROWS: u32;
override FIRST_ROW: u32;
override K: u32;
override WG: u32 = 64u;
override ROWS_PER_WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> top_values: array<f32>;
@group(0) @binding(3) var<storage, read_write> top_indices: array<u32>;
@group(0) @binding(4) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> merged: array<vec2<u32>>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn group_rows() -> u32 { return ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, grid);
    clear_rows(lid);
    for (var r = lid; r < ROWS_PER_WG; r += WG) {
        let row = group * ROWS_PER_WG + r;
        if (row < ROWS) {
            var sum = 0.0;
            for (var i = 0u; i < K; i++) { sum += weight_at(row, i, K) * x_at(i); }
            list_entries[r] = entry_of(sum, row);
        }
    }
    store_group_list(lid, group);
}

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
