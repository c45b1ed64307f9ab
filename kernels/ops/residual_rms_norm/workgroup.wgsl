// residual_rms_norm/workgroup: one workgroup a row, trees in workgroup memory; no subgroups needed.
//
//   b = delta                                             POST_NORM none
//   b[i] = delta[i] / rms(delta) * (WEIGHT_OFFSET + post_weight[i])     POST_NORM rms
//   x[i] = x[i] + b[i];  y[i] = x[i] / rms(x) * (WEIGHT_OFFSET + next_weight[i])
//   rms(v) = sqrt(mean_j v[j]^2 + EPS), each of ROWS for itself; x, delta, y: (ROWS, N); weights: (N)
//   y f32 or f16
//   WEIGHT_OFFSET: 0 with OFFSET_STANDARD, 1 with OFFSET_GEMMA
//
// Idea: three dispatches of a step become one, which costs little more than one of them: each is a
// few kilobytes and otherwise all launch, barrier and latency. The values stay in registers
// between the two sums, and the second weight is on its way before the first sum.
// import: norm/residual, norm/tree_sums
override ACT_FORMAT: u32;
override ROWS: u32;
override N: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> delta: array<f32>;
@group(0) @binding(2) var<storage, read> post_weight: array<f32>;
@group(0) @binding(3) var<storage, read> next_weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<u32>;

fn delta_at(i: u32) -> f32 { return delta[norm_base + i]; }

fn stream_at(i: u32) -> f32 { return x[norm_base + i]; }

fn set_stream(i: u32, value: f32) { x[norm_base + i] = value; }

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    norm_base = workgroup.x * N;
    residual_norm(NormLane(lid), true);
}
