override WORKGROUP_SIZE: u32 = 256u;
override HAS_GATE: bool = false;
override USE_SPLIT: bool = false;
override USE_ROWSPLIT: bool = false;
struct Uniforms { size: u32, rowsplit_dim: u32, clamp_max: f32, _pad1: f32 }
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
@group(0) @binding(3) var<storage, read> gate: array<f32>;
@compute @workgroup_size(WORKGROUP_SIZE, 1, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.y * u.rowsplit_dim + id.x;
    if (i >= u.size || id.x >= u.rowsplit_dim) { return; }
    var g = input[i];
    var up = 1.0;
    if (USE_SPLIT) { up = input[i + u.size]; }
    if (USE_ROWSPLIT) {
        g = input[i + id.y * u.rowsplit_dim];
        up = input[i + (id.y + 1u) * u.rowsplit_dim];
    }
    if (HAS_GATE) { g = gate[i]; }
    output[i] = g / (1.0 + exp(-g)) * up;
}
