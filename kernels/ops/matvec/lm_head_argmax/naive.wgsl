// lm_head_argmax/naive: one invocation a row, one weight at a time.
//
//   token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends
//   W: (ROWS, K) any format  x: (K) f32 or f16  best_*: (1), of the parts of W so far
//   partial_*: a candidate a workgroup
//
// Idea: the formula; the logits stay in registers.
// import: format/load_one, format/weight_at, grid, matvec/epilogue/argmax, step/choose
// import: step/choose_workgroup
override ROWS: u32;
override FIRST_ROW: u32;
override K: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(3) var<storage, read_write> state: array<u32>;
@group(0) @binding(4) var<storage, read_write> best_value: array<f32>;
@group(0) @binding(5) var<storage, read_write> best_index: array<u32>;
@group(0) @binding(6) var<storage, read_write> partial_values: array<f32>;
@group(0) @binding(7) var<storage, read_write> partial_indices: array<u32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn groups() -> u32 { return (ROWS + WG - 1u) / WG; }

@compute @workgroup_size(WG)
fn rows(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, grid);
    let row = group * WG + lid;
    var best = NOBODY;
    if (row < ROWS) {
        var sum = 0.0;
        for (var i = 0u; i < K; i++) { sum += weight_at(row, i, K) * x_at(i); }
        best = better(best, candidate(sum, FIRST_ROW + row));
    }
    best = workgroup_best(lid, best);
    if (lid == 0u && group < groups()) { store_group_best(group, best); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, groups()); }
