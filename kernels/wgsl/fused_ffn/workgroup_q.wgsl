// fused_ffn/workgroup_q: LANES invocations an output, one quantised weight at a time.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16
//   v = x (NORM none; f32 or f16) or stream / rms(stream) * norm_weight (NORM rms; f32), (K)
//   act: SiLU (ACT 0) or GELU, tanh form (ACT 1); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: as workgroup, over any format. Every weight finds its scale again, so this is what is
// simple enough to trust on adapters without subgroups.
// uses: activation, weight_at, acts_at, store_pair, grid
override N: u32;
override K: u32;
override NORM: u32;
override EPS: f32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // invocations an output, a power of two, at most WG/2

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read> stream: array<f32>;
@group(0) @binding(3) var<storage, read> norm_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

fn packed_word(i: u32) -> u32 { return weights[i]; }

fn rms_factor(squares: f32) -> f32 {
    if (NORM == 0u) { return 1.0; }
    return inverseSqrt(squares / f32(K) + EPS);
}

// A lane's share of gate, up and the squares of an output.
var<workgroup> slots: array<vec3<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % LANES;
    let outputs = WG / LANES;
    let first = group_index(workgroup, groups) * outputs;
    let i = first + lid / LANES;
    var sum = vec3<f32>(0.0);
    if (i < N) {
        for (var k = lane; k < K; k += LANES) {
            var v = 0.0;
            if (NORM == 0u) {
                v = x_at(k);
            } else {
                let s = stream[k];
                sum.z += s * s;
                v = s * norm_weight[k];
            }
            sum.x += weight_at(i, k, K) * v;
            sum.y += weight_at(N + i, k, K) * v;
        }
    }
    slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { slots[lid] += slots[lid + step]; }
        workgroupBarrier();
    }
    // Two outputs an invocation: two f16 make a word.
    let at = first + 2u * lid;
    if (2u * lid < outputs && at < N) {
        let a = slots[2u * lid * LANES];
        let b = slots[(2u * lid + 1u) * LANES];
        let factor = rms_factor(a.z);
        let gate = vec2<f32>(a.x, b.x) * factor;
        let up = vec2<f32>(a.y, b.y) * factor;
        let both = at + 1u < N;
        let v = vec2<f32>(activate(gate.x), activate(gate.y)) * up;
        store_pair(at, select(vec2<f32>(v.x, 0.0), v, both), both);
    }
}
