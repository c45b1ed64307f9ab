// rms_norm/naive: one invocation a row.
//
//   y[r][i] = x[r][i] / sqrt(mean_j x[r][j]^2 + EPS) * (OFFSET + weight[i])
//   x, y: (ROWS, N)  weight: (N)      OFFSET 0: standard, 1: Gemma's (1 + w)
//
// Idea: the formula, serially. In decode ROWS is 1 and one invocation does it all: the rung that
// shows what the reduction is worth.
override ROWS: u32;
override N: u32;
override EPS: f32;
override OFFSET: u32;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let base = workgroup.x * N;
    var sum = 0.0;
    for (var i = 0u; i < N; i++) { sum += x[base + i] * x[base + i]; }
    let scale = inverseSqrt(sum / f32(N) + EPS);
    for (var i = 0u; i < N; i++) { y[base + i] = x[base + i] * scale * (f32(OFFSET) + weight[i]); }
}
