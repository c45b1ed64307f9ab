// width 8, in x 8, out y 8
// An index into a variable of four elements.
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lid: u32) {
    var four = array<u32, 4>(1u, 2u, 3u, 4u);
    four[x[lid] % 4u] = lid;
    y[lid] = four[x[lid]]; // <- out_of_bounds
}
