// width 8, in x 4, out y 8
// An operand that is not evaluated reads nothing; neither does a branch not taken.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    if (lid < arrayLength(&x) && x[lid] > 0u) { y[lid] = 12u / x[lid]; } else { y[lid] = 0u; }
}
