// gemv_q/naive: one invocation a row, one weight at a time.
//
//   y[FIRST + r] = sum_k W[r][k] * x[k]        W: (ROWS, K) quantised  x: (K) f32 or f16
//
// Idea: the formula over blocks as the file has them. Every weight finds its scale again.
// uses: weight_at, acts_at, grid
override ROWS: u32;
override FIRST: u32;
override K: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
    for (var i = 0u; i < K; i++) { sum += weight_at(row, i, K) * x_at(i); }
    y[FIRST + row] = sum;
}
