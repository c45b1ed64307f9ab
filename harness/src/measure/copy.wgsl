// Device-to-device copy, sixteen bytes an invocation and round: what kernels' rates are given in parts
// of. Drivers copy buffers with a copy engine that may reach less. `read_block` leaves the stores out:
// memory that need not turn from reading to writing is a little faster.
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;

const ROUNDS: u32 = 4u;

@compute @workgroup_size(256)
fn copy_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = (workgroup.y * groups.x + workgroup.x) * 256u * ROUNDS + lid;
    let n = arrayLength(&target_);
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first + r * 256u;
        if (i < n) { target_[i] = source[i]; }
    }
}

@compute @workgroup_size(256)
fn read_block(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = (workgroup.y * groups.x + workgroup.x) * 256u * ROUNDS + lid;
    let n = arrayLength(&source);
    var all = vec4<u32>();
    for (var r = 0u; r < ROUNDS; r++) {
        let i = first + r * 256u;
        if (i < n) { all |= source[i]; }
    }
    // The block is zeros, which only the host knows: no compiler may leave the loads out.
    if (any(all != vec4<u32>())) { target_[0] = all; }
}
