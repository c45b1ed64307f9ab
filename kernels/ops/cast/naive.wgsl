// cast/naive: one invocation two values.
//
//   y[i] = x[i]        x: (N) in FROM  y: (N) in TO: f32, f16 or bf16
//
// Idea: two, because two 16-bit values make a word. Values of equal formats are copied as bits.
// import: format/floats, grid
override N: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(workgroup, groups) * WG + lid;
    if (2u * i >= N) { return; }
    let both = 2u * i + 1u < N;
    if (FROM == TO && TO != F32) {
        y[i] = x[i];
        return;
    }
    var bits = vec2<u32>(0u);
    if (FROM == F32) {
        bits.x = x[2u * i];
        if (both) { bits.y = x[2u * i + 1u]; }
    } else {
        bits = widen(x[i]);
    }
    if (TO != F32) {
        y[i] = narrow(bits);
        return;
    }
    y[2u * i] = bits.x;
    if (both) { y[2u * i + 1u] = bits.y; }
}
