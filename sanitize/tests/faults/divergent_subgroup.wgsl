// width 32, in x 64, out y 64
// Right with subgroups of up to 16 invocations.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = 0u;
    if (lid < 16u) {
        sum = subgroupAdd(x[lid]); // <- divergence
    }
    y[lid] = sum;
}
