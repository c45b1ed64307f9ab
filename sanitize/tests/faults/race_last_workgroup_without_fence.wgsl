// width 8, grid 6, in x 6, zeros arrived 1, zeros parts 6, out y 1
// The last workgroup sums what others wrote, which they did not put behind a storageBarrier.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> arrived: atomic<u32>;
@group(0) @binding(2) var<storage, read_write> parts: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
var<workgroup> is_last: bool;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    if (lid == 0u) {
        parts[group.x] = x[group.x];
        is_last = atomicAdd(&arrived, 1u) == 5u;
    }
    if (!workgroupUniformLoad(&is_last)) { return; }
    storageBarrier();
    if (lid == 0u) {
        var sum = 0u;
        for (var i = 0u; i < 6u; i++) {
            sum += parts[i]; // <- race
        }
        y[0] = sum;
    }
}
