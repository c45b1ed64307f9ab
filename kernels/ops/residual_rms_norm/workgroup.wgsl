// residual_rms_norm/workgroup: one workgroup a row, trees in workgroup memory; no subgroups needed.
//
// Idea: three dispatches of a step become one, which costs little more than one of them: each is a
// few kilobytes and otherwise all launch, barrier and latency. The values stay in registers
// between the two sums, and the second weight is on its way before the first sum.
// import: norm/residual, norm/tree_sums
override WG: u32 = 256u;

fn delta_at(i: u32) -> f32 { return delta[norm_base + i]; }

fn stream_at(i: u32) -> f32 { return x[norm_base + i]; }

fn set_stream(i: u32, value: f32) { x[norm_base + i] = value; }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    norm_base = workgroup.x * N;
    residual_norm(NormLane(lid), true);
}
