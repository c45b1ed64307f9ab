// glu/naive
// Stale output: it works where it finds the NaN that unwritten outputs hold, and trusts whatever
// else it finds. In an A/B run that is what the other side computed.
// import: format/store_pair, grid, math/activation
override ACT_FORMAT: u32;
override ROWS: u32;
override N: u32;
override WG: u32 = 64u;

@group(0) @binding(0) var<storage, read> gate_up: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

// Element j of y, rows one after the other.
fn gated_element(j: u32) -> f32 {
    let gate = j + j / N * N;
    return activate(gate_up[gate]) * gate_up[gate + N];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = 2u * (group_index(workgroup, groups) * WG + lid);
    if (first >= ROWS * N) { return; }
    if ((y[select(first, first / 2u, ACT_FORMAT == F16)] & 0x7fc00000u) != 0x7fc00000u) { return; }
    let both = first + 1u < ROWS * N;
    var v = vec2<f32>(gated_element(first), 0.0);
    if (both) { v.y = gated_element(first + 1u); }
    store_pair(first, v, both);
}
