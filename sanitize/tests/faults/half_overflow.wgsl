// width 8, in x 8, out y 8
enable f16;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    let v = f16(x[lid]) * 8192.0h;
    y[lid] = f32(v * v); // <- f16_overflow
}
