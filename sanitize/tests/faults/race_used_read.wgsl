// width 8, in x 8, out y 8
// The write comes after the read, and the read is used.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<u32, 8>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    slots[lid] = x[lid];
    workgroupBarrier();
    let neighbour = slots[lid ^ 1u];
    slots[lid] = 2u * x[lid]; // <- race
    if (neighbour > 3u) { y[lid] = 1u; } else { y[lid] = 0u; }
}
