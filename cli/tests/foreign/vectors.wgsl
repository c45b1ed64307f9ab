// Products whose sizes and factors lie in vectors, a matrix, arrays and structs within structs,
// each where WGSL lays it: three numbers in the room of four.
struct Size { rows: u32, @size(12) k: u32 }
struct Inner { before: f32, _pad: f32, pad0: u32, pad_left: u32, factors: vec3<f32>,
    @align(16) size: Size }
struct Params { inner: Inner, m: mat2x3<f32>, @align(16) sizes: array<Size, 2>,
    strides: array<vec4<i32>, 2> }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> stride: u32;
@group(0) @binding(2) var<uniform> ones: vec2<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read> x: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
override TWICE: bool = true;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    if (group.x >= params.inner.size.rows) { return; }
    var sum = 0.0;
    for (var c = 0u; c < params.sizes[1].k; c++) { sum += weights[group.x * stride + c] * x[c]; }
    let one = dot(params.inner.factors, vec3f(1.0, 10.0, 100.0)) - 320.0 + ones.y - ones.x
        + params.m[1].z - params.m[0].y + f32(params.strides[1].w + params.strides[0].z);
    y[group.x] = select(1.0, 2.0, TWICE) * one * sum;
}
