// schedule/gate_up_tree over SoA rows.
// import: grid, matvec/prologue/x_tile, matvec/rows/soa
// requires: override N: u32
// requires: fn chunk_squares(c: u32) -> f32
// requires: fn ready_x(at: u32, size: u32, group: u32, groups: u32)
// requires: fn rms_factor(squares: f32) -> f32
// requires: fn store_gated(at: u32, a: vec2<f32>, b: vec2<f32>)
override WG: u32 = 256u;
override LANES: u32 = 32u; // invocations an output, a power of two, at most WG/2

// A lane's slice of gate, up and the squares of an output.
var<workgroup> soa_gate_up_slots: array<vec3<f32>, WG>;

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
    // Past the end the last output again; the result is dropped.
    let gate = stream_base(min(i, N - 1u));
    let up = stream_base(N + min(i, N - 1u));
    var sum = vec3<f32>(0.0);
    for (var tile = 0u; tile < soa_row_chunks(); tile += TILE) {
        stage_x_tile(lid, 0u, tile);
        let end = min(soa_row_chunks(), tile + TILE);
        for (var c = tile + lane; c < end; c += LANES) {
            let v = load_x_tile(c - tile);
            let products = vec2<f32>(
                dot_soa_chunk(load_soa_chunk(gate, c), c, v), dot_soa_chunk(load_soa_chunk(up, c), c, v),
            );
            sum += vec3<f32>(products, chunk_squares(c));
        }
        workgroupBarrier();
    }
    soa_gate_up_slots[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step /= 2u) {
        if (lane < step) { soa_gate_up_slots[lid] += soa_gate_up_slots[lid + step]; }
        workgroupBarrier();
    }
    // Two outputs an invocation: two f16 make a word.
    let at = first + 2u * lid;
    if (2u * lid < outputs && at < N) {
        let a = soa_gate_up_slots[2u * lid * LANES];
        let b = soa_gate_up_slots[(2u * lid + 1u) * LANES];
        let factor = rms_factor(a.z);
        store_gated(at, a.xy * factor, b.xy * factor);
    }
}
