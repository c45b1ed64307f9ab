// width 8, out y 1
// A counter of workgroup memory that nobody set to zero.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> count: atomic<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    atomicAdd(&count, lid); // <- uninitialised
    workgroupBarrier();
    if (lid == 0u) { y[0] = atomicLoad(&count); }
}
