// width 8, in x 64, out y 64
// A neighbour's value without a barrier.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    slots[lid] = x[lid];
    y[lid] = slots[lid ^ 1u]; // <- race
}
