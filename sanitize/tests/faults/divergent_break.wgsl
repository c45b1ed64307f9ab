// width 8, in x 8, out y 8
// Some invocations leave the loop before its barrier.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<u32, 8>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    slots[lid] = x[lid];
    for (var i = 0u; i < 3u; i++) {
        if (x[lid] == 2u && i == 1u) { break; }
        storageBarrier(); // <- divergence
    }
    y[lid] = slots[lid];
}
