// width 8, in x 64, out y 64
// A sum over 32 invocations by shuffles, whatever the size of subgroups.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = x[lid];
    for (var by = 16u; by > 0u; by /= 2u) {
        sum += subgroupShuffleXor(sum, by); // <- out_of_bounds
    }
    y[lid] = sum;
}
