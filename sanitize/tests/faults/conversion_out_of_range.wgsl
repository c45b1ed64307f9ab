// width 8, in x 8, out y 8
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<i32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] = i32(1e9 * f32(x[lid])); // <- conversion
}
