// Rows of f16 by vectors of four, one workgroup a row, every buffer declared `read_write`, with an
// entry point that nobody dispatches and whose buffer is in another group.
enable f16;
struct Params { n_rows: u32, n_cols: u32, stride: u32, alpha: f32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> W: array<vec4<f16>>;
@group(0) @binding(2) var<storage, read_write> input: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;
@group(1) @binding(0) var<storage, read_write> unused: array<f32>;
var<workgroup> sums: array<f32, 64>;
@compute @workgroup_size(64)
fn gemv_main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) i: u32) {
    let row = group.x;
    // Workgroup memory begins at zero.
    for (var c = i; c < params.n_cols / 4u; c += 64u) {
        sums[i] += dot(vec4<f32>(W[row * (params.stride / 4u) + c]), input[c]);
    }
    workgroupBarrier();
    if (i == 0u) {
        var all = 0.0;
        for (var s = 0u; s < 64u; s++) { all += sums[s]; }
        result[row] = params.alpha * all;
    }
}
@compute @workgroup_size(64)
fn other(@builtin(local_invocation_index) i: u32) { unused[i] = 1.0; }
