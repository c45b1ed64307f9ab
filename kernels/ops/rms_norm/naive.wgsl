// rms_norm/naive: one invocation.
//
//   y[r][i] = x[r][i] / sqrt(mean_j x[r][j]^2 + EPS) * (WEIGHT_OFFSET + weight[i])
//   x, y: (ROWS, N)  weight: (N)  y f32 or f16
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: the formula, serially, and so the rung that shows what the reduction is worth. A single
// invocation may also write f16 rows of odd length, which share words.
// import: format/store_pair
override ACT_FORMAT: u32;
override ROWS: u32;
override N: u32;
override EPS: f32;
override WEIGHT_OFFSET: u32;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main() {
    var even = 0.0;
    for (var r = 0u; r < ROWS; r++) {
        var sum = 0.0;
        for (var i = 0u; i < N; i++) { sum += x[r * N + i] * x[r * N + i]; }
        let scale = inverseSqrt(sum / f32(N) + EPS);
        for (var i = 0u; i < N; i++) {
            let at = r * N + i;
            let v = x[at] * scale * (f32(WEIGHT_OFFSET) + weight[i]);
            if (at % 2u == 1u) {
                store_pair(at - 1u, vec2<f32>(even, v), true);
            } else if (at + 1u == ROWS * N) {
                store_pair(at, vec2<f32>(v, 0.0), false);
            }
            even = v;
        }
    }
}
