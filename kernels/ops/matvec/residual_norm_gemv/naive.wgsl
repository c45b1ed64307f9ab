// residual_norm_gemv/naive: one invocation a row, one weight at a time, in any format; each makes all of x.
//
//   next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      rms(v) = sqrt(mean v^2 + EPS)
//   y[Y_OFFSET + r] = sum_k W[r][k] * n[k]               n[k] = next_x[k] / rms(next_x) * g[k]
//   W: (ROWS, K)  x, delta, p, g, next_x: (K), f32
//
// Idea: the formulas, serially. Others read x while this one writes, so the new stream goes to next_x, of
// which every invocation writes its share.
// import: format/weight_at, grid
override ROWS: u32;
override K: u32;
override Y_OFFSET: u32;
override EPS: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> delta: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> next_x: array<f32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn joined_at(k: u32, factor: f32) -> f32 { return x[k] + delta[k] * factor * post_weight[k]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = group_index(workgroup, groups) * WG + lid;
    var squares = 0.0;
    for (var k = 0u; k < K; k++) { squares += delta[k] * delta[k]; }
    let factor = inverseSqrt(squares / f32(K) + EPS);
    for (var k = row; k < K; k += groups.x * groups.y * WG) { next_x[k] = joined_at(k, factor); }
    if (row >= ROWS) { return; }
    var sum = 0.0;
    squares = 0.0;
    for (var k = 0u; k < K; k++) {
        let v = joined_at(k, factor);
        sum += weight_at(row, k, K) * v * norm_weight[k];
        squares += v * v;
    }
    y[Y_OFFSET + row] = sum * inverseSqrt(squares / f32(K) + EPS);
}
