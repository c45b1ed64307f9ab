// The lower and the upper half of the rows in buffers of their own.
override ROWS: u32;
override K: u32;
override ROW: u32;
override HALF: u32;
@group(0) @binding(0) var<storage, read> low: array<f32>;
@group(0) @binding(1) var<storage, read> high: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < K; c++) {
        if (row < HALF) { sum += low[row * ROW + c] * x[c]; }
        else { sum += high[(row - HALF) * ROW + c] * x[c]; }
    }
    y[row] = sum;
}
