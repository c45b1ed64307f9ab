// width 8, grid 4, zeros last 1, out y 4
// The number of workgroups that have been there before.
@group(0) @binding(0) var<storage, read_write> last: atomic<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    y[group.x] = atomicAdd(&last, 1u);
}
