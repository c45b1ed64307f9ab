// residual_norm_ffn/naive: one invocation two outputs, one weight at a time, in any format.
//
//   next_x[k] = x[k] + delta[k] / rms(delta) * p[k]      n[k] = next_x[k] / rms(next_x) * g[k]
//   y[i] = act(Wg[i] . n) * (Wu[i] . n)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16
//   x, delta, p, g, next_x: (K), f32  rms(v) = sqrt(mean v^2 + EPS)
//   act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH)
//
// Idea: the formulas, nothing else. Two outputs, because two f16 make a word. Others read x while this one
// writes, so the new stream goes to next_x, of which every invocation writes its share.
// import: format/store_pair, format/weight_at, grid, math/activation
override ACT_FORMAT: u32;
override N: u32;
override K: u32;
override EPS: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> delta: array<f32>;
@group(0) @binding(3) var<storage, read> post_weight: array<f32>;
@group(0) @binding(4) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<u32>;
@group(0) @binding(6) var<storage, read_write> next_x: array<f32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn joined_at(k: u32, factor: f32) -> f32 { return x[k] + delta[k] * factor * post_weight[k]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let invocation = group_index(workgroup, groups) * WG + lid;
    var squares = 0.0;
    for (var k = 0u; k < K; k++) { squares += delta[k] * delta[k]; }
    let post = inverseSqrt(squares / f32(K) + EPS);
    for (var k = invocation; k < K; k += groups.x * groups.y * WG) { next_x[k] = joined_at(k, post); }
    let at = 2u * invocation;
    if (at >= N) { return; }
    squares = 0.0;
    for (var k = 0u; k < K; k++) {
        let v = joined_at(k, post);
        squares += v * v;
    }
    let factor = inverseSqrt(squares / f32(K) + EPS);
    // Gate of both outputs, then up of both: one piece of code, compiled once.
    var sums = vec4<f32>(0.0);
    for (var r = 0u; r < 4u; r++) {
        let i = at + r % 2u;
        if (i < N) {
            var sum = 0.0;
            for (var k = 0u; k < K; k++) {
                sum += weight_at(i + (r / 2u) * N, k, K) * joined_at(k, post) * norm_weight[k];
            }
            sums[r] = sum * factor;
        }
    }
    let v = vec2<f32>(activate(sums.x), activate(sums.y)) * sums.zw;
    store_pair(at, v, at + 1u < N);
}
