// width 8, in x 60, out y 64
// The last workgroup reads past the end.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] = x[lid]; // <- out_of_bounds
}
