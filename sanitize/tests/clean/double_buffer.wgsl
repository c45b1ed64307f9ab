// width 4, in x 64, out y 16
// Two tiles by turns need one barrier a round.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> tiles: array<array<f32, 16>, 2>;
@compute @workgroup_size(16)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = 0.0;
    for (var t = 0u; t < 4u; t++) {
        tiles[t % 2u][lid] = x[16u * t + lid];
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) { sum += tiles[t % 2u][k]; }
    }
    y[lid] = sum;
}
