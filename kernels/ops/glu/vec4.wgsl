// glu/vec4: one invocation four elements; N a multiple of 4.
//
// Idea: 16-byte loads and stores.
// import: format/store_four, grid, math/activation
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> gate_up: array<vec4<f32>>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    let fours = N / 4u;
    if (i >= ROWS * fours) { return; }
    let gate = i + i / fours * fours;
    let g = gate_up[gate];
    let a = vec4<f32>(activate(g.x), activate(g.y), activate(g.z), activate(g.w));
    store_four(i, a * gate_up[gate + fours]);
}
