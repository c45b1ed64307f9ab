// width 8, out y 64
// A flag is read without a barrier after it was set.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
var<workgroup> flag: atomic<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) { atomicStore(&flag, 0u); }
    workgroupBarrier();
    if (lid == 20u) { atomicStore(&flag, 1u); }
    y[lid] = atomicLoad(&flag);
}
