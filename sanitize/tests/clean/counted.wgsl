// width 8, in x 64, zeros total 1, out y 1
// Counters that are set to zero, added to and read, with barriers between.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> total: atomic<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
var<workgroup> count: atomic<u32>;
var<workgroup> is_any: atomic<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) { atomicStore(&count, 0u); atomicStore(&is_any, 0u); }
    workgroupBarrier();
    atomicAdd(&count, x[lid]);
    // Many say the same, each by an atomic.
    if (x[lid] > 5u) { atomicStore(&is_any, 1u); }
    atomicAdd(&total, x[lid]);
    workgroupBarrier();
    if (lid == 0u) { y[0] = atomicLoad(&count) + atomicLoad(&is_any); }
}
