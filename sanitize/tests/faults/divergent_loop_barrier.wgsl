// width 8, in x 8, out y 8
// Invocations run different numbers of rounds.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = 0u;
    for (var i = 0u; i < x[lid]; i++) {
        workgroupBarrier(); // <- divergence
        sum += i;
    }
    y[lid] = sum;
}
