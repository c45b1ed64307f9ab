// fused_ffn/workgroup: LANES invocations an output, summed through workgroup memory; dense weights.
//
//   y[i] = act(Wg[i] . v) * (Wu[i] . v)      W: [gate (N) | up (N)] x K  y: (N) f32 or f16
//   v = x (INPUT_NORM none; f32 or f16) or stream / rms(stream) * norm_weight (INPUT_NORM rms; f32), (K)
//   act: SiLU (ACTIVATION ACT_SILU) or GELU, tanh form (ACT_GELU_TANH); rms(s) = sqrt(mean s^2 + EPS)
//
// Idea: gate and up of an output are two rows of one product that meet in registers: the
// (2N) vector between GEMV and activation is neither written nor read, and a dispatch is saved.
// The norm before the matrix costs another: its factor is applied to the sums (prologue/rms_chunk). No
// subgroups needed.
// import: format/store_pair, grid, math/activation, matvec/prologue/rms_chunk, matvec/rows/dense
override N: u32;
override WG: u32 = 256u;
override LANES: u32 = 32u; // invocations an output, a power of two, at most WG/2

@group(0) @binding(0) var<storage, read> weights: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> stream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> norm_weight: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

// A lane's slice of gate, up and the squares of an output.
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
        let gate = i * row_chunks();
        let up = (N + i) * row_chunks();
        for (var c = lane; c < row_chunks(); c += LANES) {
            let part = load_normed_chunk(c);
            let g = dot_chunk(weights[gate + c], part.v);
            let u = dot_chunk(weights[up + c], part.v);
            sum += vec3<f32>(g, u, part.squares);
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
