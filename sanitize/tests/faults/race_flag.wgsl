// width 8, in x 8, out y 8
// An atomic flag says that a plain value is there; no barrier orders the value.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> value: u32;
var<workgroup> ready: atomic<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) { atomicStore(&ready, 0u); }
    workgroupBarrier();
    if (lid == 3u) { value = x[3]; atomicStore(&ready, 1u); }
    y[lid] = 0u;
    if (lid != 3u && atomicLoad(&ready) == 1u) {
        y[lid] = value; // <- race
    }
}
