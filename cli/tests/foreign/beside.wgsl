// The upper half of the rows beside the whole, and a uniform that has a binding's name.
struct Sizes { k: u32, row: u32, half: u32 }
@group(0) @binding(0) var<storage, read> W: array<f32>;
@group(0) @binding(1) var<storage, read> high: array<f32>;
@group(0) @binding(2) var<storage, read> input: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<uniform> x: Sizes;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < x.k; c++) {
        if (row < x.half) { sum += W[row * x.row + c] * input[c]; }
        else { sum += high[(row - x.half) * x.row + c] * input[c]; }
    }
    y[row] = sum;
}
