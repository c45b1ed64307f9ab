// width 8, in x 64, out y 64
// The next round overwrites what others still read.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> slots: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = 0.0;
    for (var round = 0u; round < 2u; round++) {
        slots[lid] = x[lid]; // <- race
        workgroupBarrier();
        sum += slots[63u - lid];
    }
    y[lid] = sum;
}
