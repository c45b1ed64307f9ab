// width 8, in x 8, out y 8
// A workgroupBarrier orders no storage.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] = x[lid];
    workgroupBarrier();
    let next = y[(lid + 1u) % 8u]; // <- race
    storageBarrier();
    y[lid] = next;
}
