// lm_head_argmax/workgroup: LANES invocations a row, one row after another; no subgroups needed.
//
//   token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends
//   W: (ROWS, K) dense  x: (K) f32 or f16  best_*: (1), of the parts of W so far
//   partial_*: a candidate a workgroup
//
// Idea: neighbouring invocations read neighbouring words, a tree in workgroup memory sums them, and
// the first lane of each row keeps the best of its rows until the end.
// import: grid, matvec/epilogue/argmax, matvec/rows/dense, reduce/lanes, step/choose
// import: step/choose_workgroup
// import: grid, matvec/epilogue/argmax, matvec/rows/dense, reduce/lanes, step/choose
// import: step/choose_workgroup
override ROWS: u32;
override FIRST_ROW: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u;
override ROWS_PER_WG: u32 = 64u; // a multiple of WG / LANES

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> best_value: array<f32>;
@group(0) @binding(5) var<storage, read_write> best_index: array<u32>;
@group(0) @binding(6) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(7) var<storage, read_write> partial_indices: array<u32>;

fn groups() -> u32 { return (ROWS + ROWS_PER_WG - 1u) / ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, grid);
    let lane = lid % LANES;
    var best = NOBODY;
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
        if (lane == 0u && row < ROWS) { best = better(best, Candidate(sum, FIRST_ROW + row)); }
    }
    best = workgroup_best(lid, best);
    if (lid == 0u && group < groups()) { store_group_best(group, best); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, groups()); }
