// width 32, in x 48, out y 48
// The last subgroup is half full; its shuffles reach into the other half.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(48)
fn main(@builtin(local_invocation_index) lid: u32) {
    y[lid] = subgroupShuffleXor(x[lid], 16u); // <- out_of_bounds
}
