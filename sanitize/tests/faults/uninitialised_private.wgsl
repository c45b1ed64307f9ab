// width 8, in x 8, out y 8
// A sum that begins with whatever the variable holds.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<private> sum: f32;
fn add(v: f32) {
    sum += v; // <- uninitialised
}
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    add(x[lid]);
    add(x[7u - lid]);
    y[lid] = sum;
}
