// width 8, in x 8, out y 8
// An output is taken for zero.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] += x[lid]; // <- uninitialised
}
