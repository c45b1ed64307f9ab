struct Shape { nrows: u32, ncols: u32, nmats: u32, stride: u32, stride_mat: u32, offset: u32 }
@group(0) @binding(0) var<uniform> shape_v: Shape;
@group(0) @binding(1) var<uniform> shape_w: Shape;
@group(0) @binding(2) var<uniform> shape_out: Shape;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> w: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<uniform> config: Config;
struct Config { nudge_factor: f32 }
@compute @workgroup_size(1)
fn main() {
    var squares = 0.0;
    for (var i = 0u; i < shape_v.nrows; i++) { let x = v[shape_v.offset + i]; squares += x * x; }
    let scale = 1.0 / sqrt(squares / f32(shape_v.nrows) + config.nudge_factor);
    for (var i = 0u; i < shape_v.nrows; i++) {
        out[shape_out.offset + i] = v[shape_v.offset + i] * scale * w[shape_w.offset + i];
    }
}
