// width 8, out y 4
// All invocations write one word, the same value or not.
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8)
fn main() {
    y[0] = 1u; // <- race
}
