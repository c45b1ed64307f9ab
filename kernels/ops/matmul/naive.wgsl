// matmul/naive: one invocation an element of y.
//
//   y[m][Y_OFFSET + r] = sum_k x[m][k] * W[r][k] + BETA * y[m][Y_OFFSET + r]
//   x: (N_TOKENS, K) f32 or f16   W: (ROWS, K) in any format   y: (N_TOKENS, Y_OFFSET + ROWS + Y_AFTER) f32
//
// Idea: the formula, nothing else, one weight at a time. Every weight is decoded N_TOKENS times and every
// operand comes from the cache: this rung shows what tiles are worth.
// import: format/load_one, format/weight_at, grid
override N_TOKENS: u32;
override ROWS: u32;
override K: u32;
override Y_OFFSET: u32;
override Y_AFTER: u32;
override BETA: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn packed_word(i: u32) -> u32 {
    return weights[i];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    let m = i / ROWS;
    let row = i % ROWS;
    if (m >= N_TOKENS) { return; }
    var sum = 0.0;
    for (var k = 0u; k < K; k++) { sum += x_at(m * K + k) * weight_at(row, k, K); }
    let at = m * (Y_OFFSET + ROWS + Y_AFTER) + Y_OFFSET + row;
    if (BETA == BETA_1) { sum += y[at]; }
    y[at] = sum;
}
