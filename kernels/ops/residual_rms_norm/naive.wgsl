// residual_rms_norm/naive: one invocation a row.
//
//   b = delta                                             POST_NORM none
//   b[i] = delta[i] / rms(delta) * (WEIGHT_OFFSET + post_weight[i])     POST_NORM rms
//   x[i] = x[i] + b[i];  y[i] = x[i] / rms(x) * (WEIGHT_OFFSET + next_weight[i])
//   rms(v) = sqrt(mean_j v[j]^2 + EPS), each of ROWS for itself; x, delta, y: (ROWS, N); weights: (N)
//   y f32 or f16; WEIGHT_OFFSET 0: standard, 1: Gemma's
//
// Idea: the formula, serially.
// import: format/store_pair
override ACT_FORMAT: u32;
override ROWS: u32;
override N: u32;
override EPS: f32;
override WEIGHT_OFFSET: u32;
override POST_NORM: u32;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> delta: array<f32>;
@group(0) @binding(2) var<storage, read> post_weight: array<f32>;
@group(0) @binding(3) var<storage, read> next_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
    let base = workgroup.x * N;
    var squares = 0.0;
    for (var i = 0u; i < N; i++) { squares += delta[base + i] * delta[base + i]; }
    let post = inverseSqrt(squares / f32(N) + EPS);
    squares = 0.0;
    for (var i = 0u; i < N; i++) {
        var b = delta[base + i];
        if (POST_NORM == NORM_RMS) { b *= post * (f32(WEIGHT_OFFSET) + post_weight[i]); }
        let v = x[base + i] + b;
        x[base + i] = v;
        squares += v * v;
    }
    let scale = inverseSqrt(squares / f32(N) + EPS);
    for (var i = 0u; i < N; i += 2u) {
        let both = i + 1u < N;
        var v = vec2<f32>(x[base + i] * scale * (f32(WEIGHT_OFFSET) + next_weight[i]), 0.0);
        if (both) { v.y = x[base + i + 1u] * scale * (f32(WEIGHT_OFFSET) + next_weight[i + 1u]); }
        store_pair(base + i, v, both);
    }
}
