// scale/naive: one invocation an element.
//
//   y[i] = BY * x[i]        x, y: (N), f32
// import: grid
override N: u32;
override BY: f32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N) { return; }
    y[i] = BY * x[i];
}
