// width 8, in x 64, out y 64
// An index below zero.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[i32(lid) - 1] = x[lid]; // <- out_of_bounds
}
