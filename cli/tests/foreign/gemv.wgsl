// A matrix of f32 whose rows are `ROW` and whose columns are `COLUMN` values apart.
override ROWS: u32;
override K: u32;
override ROW: u32;
override COLUMN: u32;
@group(0) @binding(0) var<storage, read> W: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = 0.0;
    for (var c = 0u; c < K; c++) { sum += W[group.x * ROW + c * COLUMN] * x[c]; }
    y[group.x] = sum;
}
