// lm_head_topk/subgroup: four rows a subgroup at a time, sorted in workgroup memory.
//
//   (top_values, top_indices) = the first TOP_K of (y[r], FIRST_ROW + r), larger y first, of equal y the
//   lower index; y[r] = sum_k W[r][k] * x[k], and of the parts of W before, see PART
//   W: (ROWS, K) dense  x: (K) f32 or f16  top_*: (TOP_K)
//   lists: (groups of rows, TOP_K) of (key, index)  merged: (MERGERS, TOP_K)
//
// Idea: gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four independent loads
// in flight), but the logits stay in workgroup memory, and of them TOP_K are written. Many rows a
// workgroup keep the merging short, few of them balance the load.
// import: grid, matvec/epilogue/topk, matvec/rows/dense, sort/list, sort/merge
// import: grid, matvec/epilogue/topk, matvec/rows/dense, sort/list, sort/merge
override ROWS: u32;
override FIRST_ROW: u32;
override WG: u32 = 256u;
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time
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
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let group = group_index(workgroup, grid);
    clear_rows(lid);
    for (var r = 4u * subgroup; r < ROWS_PER_WG; r += 4u * subgroups) {
        let row = group * ROWS_PER_WG + r;
        if (row >= ROWS) { break; }
        // Rows past the end repeat the last one: loads stay inside, results are dropped.
        let last = ROWS - 1u;
        let base0 = row * row_chunks();
        let base1 = min(row + 1u, last) * row_chunks();
        let base2 = min(row + 2u, last) * row_chunks();
        let base3 = min(row + 3u, last) * row_chunks();
        var sum = vec4<f32>(0.0);
        for (var c = lane; c < row_chunks(); c += sg) {
            let w0 = weights[base0 + c];
            let w1 = weights[base1 + c];
            let w2 = weights[base2 + c];
            let w3 = weights[base3 + c];
            let v = load_x_chunk(c);
            sum += vec4<f32>(
                dot_chunk(w0, v), dot_chunk(w1, v), dot_chunk(w2, v), dot_chunk(w3, v),
            );
        }
        let total = subgroupAdd(sum);
        if (lane < 4u && row + lane < ROWS) { list_entries[r + lane] = entry_of(total[lane], row + lane); }
    }
    store_group_list(lid, group);
}

@compute @workgroup_size(WG)
fn merge(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    merge_share(lid, workgroup.x);
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_lists_last(lid); }
