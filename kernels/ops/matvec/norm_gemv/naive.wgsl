// norm_gemv/naive: one invocation a row, one weight at a time, in any format; it norms x for itself.
//
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]    n[k] = x[k] / sqrt(mean x^2 + EPS) * (WEIGHT_OFFSET + g[k])
//   W: (ROWS, K)  x, g: (K), f32
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: the formula in one pass: the norm's scale is one number for the row and is applied to its
// sum. A dispatch less, for a few flops more.
// import: format/weight_at, grid
override ROWS: u32;
override K: u32;
override Y_OFFSET: u32;
override EPS: f32;
override WEIGHT_OFFSET: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    if (row >= ROWS) { return; }
    var sum = 0.0;
    var squares = 0.0;
    for (var k = 0u; k < K; k++) {
        sum += weight_at(row, k, K) * x[k] * (f32(WEIGHT_OFFSET) + norm_weight[k]);
        squares += x[k] * x[k];
    }
    y[Y_OFFSET + row] = sum * inverseSqrt(squares / f32(K) + EPS);
}
