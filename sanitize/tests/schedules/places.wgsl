// width 8, in x 8, out y 8
// Each takes the next place.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> count: atomic<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) { atomicStore(&count, 0u); }
    workgroupBarrier();
    y[atomicAdd(&count, 1u)] = x[lid];
}
