// width 8, in x 8, out y 4
// Two invocations write the halves of a word, which are two memory locations.
enable f16;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f16>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) { y[lid] = f16(x[lid]); }
