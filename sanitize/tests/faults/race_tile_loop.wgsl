// width 8, in x 64, out y 16
// The tile of the next round is stored while others still multiply this one's.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> tile: array<array<f32, 4>, 4>;
@compute @workgroup_size(4, 4)
fn main(@builtin(local_invocation_id) at: vec3<u32>) {
    var sum = 0.0;
    for (var t = 0u; t < 4u; t++) {
        tile[at.y][at.x] = x[16u * t + 4u * at.y + at.x]; // <- race
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) { sum += tile[at.y][k] * tile[k][at.x]; }
        if (t == 2u) { workgroupBarrier(); }
    }
    y[4u * at.y + at.x] = sum;
}
