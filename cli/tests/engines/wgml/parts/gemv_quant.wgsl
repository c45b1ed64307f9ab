struct Shape { nrows: u32, ncols: u32, nmats: u32, stride: u32, stride_mat: u32, offset: u32 }
@group(0) @binding(0) var<uniform> shape_out: Shape;
@group(0) @binding(1) var<uniform> shape_m: Shape;
@group(0) @binding(2) var<uniform> shape_v: Shape;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read> m: array<u32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
@compute @workgroup_size(4)
fn gemv(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let row = shape_m.offset + (wg.x * 4u + i) * shape_m.stride;
    var sum = 0.0;
    for (var k = 0u; k < shape_m.ncols * BLOCK; k++) {
        sum += weight(row + k / BLOCK, k % BLOCK) * v[shape_v.offset * 4u + k];
    }
    out[(shape_out.offset + wg.x) * 4u + i] = sum;
}
