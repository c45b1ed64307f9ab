// lm_head_topk/workgroup: LANES invocations a row, one row after another; no subgroups needed.
//
//   (top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), larger y first, of equal y the
//   lower index; y[r] = sum_k W[r][k] * x[k], and of the parts of W before, see PART
//   W: (ROWS, K) dense  x: (K) f32 or f16  top_*: (TOP_K)
//   lists: (groups of rows, TOP_K) of (key, index)  merged: (MERGERS, TOP_K)
//
// Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums them, and
// the logits stay there to be sorted.
// import: grid, matvec/epilogue/topk, matvec/rows/dense, reduce/lanes, sort/list, sort/merge
// import: grid, matvec/epilogue/topk, matvec/rows/dense, reduce/lanes, sort/list, sort/merge
override ROWS: u32;
override FIRST_ROW: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u;
override ROWS_PER_WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> top_values: array<f32>;
@group(0) @binding(3) var<storage, read_write> top_indices: array<u32>;
@group(0) @binding(4) var<storage, read_write> lists: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> merged: array<vec2<u32>>;

fn group_rows() -> u32 { return ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, grid);
    let lane = lid % LANES;
    clear_rows(lid);
    for (var r = 0u; r < ROWS_PER_WG; r += WG / LANES) {
        let row = group * ROWS_PER_WG + r + lid / LANES;
        var sum = 0.0;
        if (row < ROWS) {
            let base = row * row_chunks();
            for (var c = lane; c < row_chunks(); c += LANES) {
                sum += dot_chunk(weights[base + c], load_x_chunk(c));
            }
        }
        sum = lane_sum(lid, sum);
        if (lane == 0u && row < ROWS) { list_entries[r + lid / LANES] = entry_of(sum, row); }
    }
    store_group_list(lid, group);
}

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
