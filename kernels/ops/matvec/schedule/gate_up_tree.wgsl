// LANES invocations an output's gate and up row, summed through a tree in workgroup memory; no
// subgroups.
// import: grid
// requires: var weights: array<vec4<u32>>
// requires: override N: u32
// requires: type Chunk, NormedChunk, XChunk
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_normed_chunk(c: u32) -> NormedChunk
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>)
override WG: u32 = 256u;
override LANES: u32 = 32u; // invocations an output, a power of two, at most WG/2

// A lane's slice of gate, up and the squares of an output.
var<workgroup> gate_up_slots: array<vec3<f32>, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(workgroup, groups);
    ready_x(lid, 1u, group, groups.x * groups.y);
    let lane = lid % LANES;
    let outputs = WG / LANES;
    let first = group * outputs;
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
    gate_up_slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { gate_up_slots[lid] += gate_up_slots[lid + step]; }
        workgroupBarrier();
    }
    // Two outputs an invocation: two f16 make a word.
    let at = first + 2u * lid;
    if (2u * lid < outputs && at < N) {
        let a = gate_up_slots[2u * lid * LANES];
        let b = gate_up_slots[(2u * lid + 1u) * LANES];
        let factor = rms_factor(a.z);
        store_gated(at, a.xy * factor, b.xy * factor);
    }
}
