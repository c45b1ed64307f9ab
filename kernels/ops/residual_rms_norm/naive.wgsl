// residual_rms_norm/naive: one invocation two rows.
//
//   b = delta                                             POST_NORM none
//   b[i] = delta[i] / rms(delta) * (WEIGHT_OFFSET + post_weight[i])     POST_NORM rms
//   x[i] = x[i] + b[i];  y[i] = x[i] / rms(x) * (WEIGHT_OFFSET + next_weight[i])
//   rms(v) = sqrt(mean_j v[j]^2 + EPS), each of ROWS for itself; x, delta, y: (ROWS, N); weights: (N)
//   y f32 or f16
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: the formula, serially. Two rows, because two f16 make a word and rows of odd length share one.
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
    let first = 2u * workgroup.x;
    var even = 0.0;
    for (var r = first; r < min(first + 2u, ROWS); r++) {
        let base = r * N;
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
        for (var i = 0u; i < N; i++) {
            let at = base + i;
            let v = x[at] * scale * (f32(WEIGHT_OFFSET) + next_weight[i]);
            if (at % 2u == 1u) {
                store_pair(at - 1u, vec2<f32>(even, v), true);
            } else if (at + 1u == ROWS * N) {
                store_pair(at, vec2<f32>(v, 0.0), false);
            }
            even = v;
        }
    }
}
