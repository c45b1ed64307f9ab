// width 8, in x 8, out y 8
// A row of a table is one too long.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
var<workgroup> table: array<vec4<u32>, 7>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    table[lid].y = x[lid]; // <- out_of_bounds
    y[lid] = 0u;
}
