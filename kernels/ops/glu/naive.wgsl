// glu/naive: one invocation two elements.
//
//   y[r][i] = act(gate[r][i]) * up[r][i]        r < ROWS
//   gate_up: ROWS of [gate (N) | up (N)]  y: (ROWS, N) f32 or f16
//
// Idea: gate and up come out of one GEMV over stacked rows, so they share a buffer. Two elements, because two
// f16 make a word.
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
    let both = first + 1u < ROWS * N;
    var v = vec2<f32>(gated_element(first), 0.0);
    if (both) { v.y = gated_element(first + 1u); }
    store_pair(first, v, both);
}
