// width 8, grid 2, in x 16, out y 16
// Each invocation has slots, private memory and half a row of its own.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> slots: array<vec2<u32>, 8>;
var<private> last: u32;
@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    var sums: array<u32, 2>;
    for (var i = 0u; i < 3u; i++) {
        slots[lid] = vec2(x[lid], i);
        sums[i & 1u] += slots[lid].x;
        last = slots[lid].y;
    }
    y[2u * lid + group.x] = sums[0] + sums[1] + last;
    y[2u * lid + group.x] += 1u;
}
