// width 8, in x 30, out y 8
// The last vector is not whole.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] = x[lid].x; // <- out_of_bounds
}
