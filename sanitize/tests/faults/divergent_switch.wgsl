// width 8, in x 16, out y 16
// Two barriers of two branches are not one.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(16)
fn main(@builtin(local_invocation_index) lid: u32) {
    switch (lid / 8u) {
        case 0u: {
            workgroupBarrier(); // <- divergence
        }
        default: {
            workgroupBarrier(); // <- divergence
        }
    }
    y[lid] = x[lid];
}
