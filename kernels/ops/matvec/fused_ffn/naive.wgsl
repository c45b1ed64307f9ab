// fused_ffn/naive: one invocation two outputs, one weight at a time, in any format.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: the formula, nothing else. Two outputs, because two f16 make a word.
// import: format/load_one, format/store_pair, format/weight_at, grid, math/activation
override N: u32;
override K: u32;
override INPUT_NORM: u32;
override EPS: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> stream: array<f32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn up_at(i: u32) -> f32 {
    if (INPUT_NORM == NORM_NONE) { return x_at(i); }
    return stream[i] * norm_weight[i];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = 2u * (group_index(workgroup, groups) * WG + lid);
    if (at >= N) { return; }
    var factor = 1.0;
    if (INPUT_NORM == NORM_RMS) {
        var squares = 0.0;
        for (var k = 0u; k < K; k++) { squares += stream[k] * stream[k]; }
        factor = inverseSqrt(squares / f32(K) + EPS);
    }
    // Gate of both outputs, then up of both: one piece of code, compiled once.
    var sums = vec4<f32>(0.0);
    for (var r = 0u; r < 4u; r++) {
        let i = at + r % 2u;
        if (i < N) {
            var sum = 0.0;
            for (var k = 0u; k < K; k++) { sum += weight_at(i + (r / 2u) * N, k, K) * up_at(k); }
            sums[r] = sum * factor;
        }
    }
    let v = vec2<f32>(activate(sums.x), activate(sums.y)) * sums.zw;
    store_pair(at, v, at + 1u < N);
}
