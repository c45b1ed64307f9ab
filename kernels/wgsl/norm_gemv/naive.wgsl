// norm_gemv/naive: one invocation a row, which norms x for itself.
//
//   y[FIRST + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32           OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: the formula in one pass: the norm's scale is one number for the row and is applied to its
// sum. A dispatch less, for a few flops more.
// uses: row_norm, weights, grid
override ROWS: u32;
override FIRST: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    var sum = Partial();
    for (var c = 0u; c < row_chunks(); c++) { sum += weigh(load_chunk(row, c), row_x(c)); }
    y[FIRST + row] = finish(sum);
}
