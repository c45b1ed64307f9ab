// 4-bit codes less 8 times a scale, both in buffers of their own.
override K: u32;
override WORD_ROW: u32;
override WORD_COLUMN: u32;
override SCALE_ROW: u32;
override SCALE_COLUMN: u32;
@group(0) @binding(0) var<storage, read> qweight: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let row = group.x;
    var sum = 0.0;
    for (var c = 0u; c < K; c++) {
        let word = qweight[row * WORD_ROW + (c / 8u) * WORD_COLUMN];
        let code = f32((word >> (4u * (c % 8u))) & 15u) - 8.0;
        sum += scales[row * SCALE_ROW + (c / 32u) * SCALE_COLUMN] * code * x[c];
    }
    y[row] = sum;
}
