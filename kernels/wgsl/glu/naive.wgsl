// glu/naive: one invocation an element.
//
//   y[i] = act(gate[i]) * up[i]        gate_up: [gate (N) | up (N)]  y: (N)
//
// Idea: gate and up come out of one GEMV over stacked rows, so they share a buffer.
// uses: activation, grid
override N: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (i >= N) { return; }
    y[i] = activate(gate_up[i]) * gate_up[N + i];
}
