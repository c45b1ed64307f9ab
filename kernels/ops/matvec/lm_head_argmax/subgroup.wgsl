// lm_head_argmax/subgroup: four rows a subgroup at a time, the best of them in registers.
//
//   token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends
//   W: (ROWS, K) dense  x: (K) f32 or f16  best_*: (1), of the parts of W so far
//   partial_*: a candidate a workgroup
//
// Idea: gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four independent loads
// in flight), but no logit is written: after its rows a workgroup leaves one candidate. Many rows a
// workgroup keep the second stage short, few of them balance the load.
// import: grid, matvec/epilogue/argmax, matvec/rows/dense, step/choose, step/choose_workgroup
override ROWS: u32;
override FIRST_ROW: u32;
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 128u; // a multiple of 4
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

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
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let group = group_index(workgroup, grid);
    var best = NOBODY;
    for (var r = 4u * subgroup; r < ROWS_PER_WG; r += 4u * subgroups) {
        let row = group * ROWS_PER_WG + r;
        if (row >= ROWS) { break; }
        // Rows past the end repeat the last one: loads stay inside, and a repeated candidate is none.
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
        for (var i = 0u; i < 4u; i++) {
            best = better(best, Candidate(total[i], FIRST_ROW + min(row + i, last)));
        }
    }
    best = workgroup_best(lid, best);
    if (lid == 0u && group < groups()) { store_group_best(group, best); }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) { merge_best(lid, groups()); }
