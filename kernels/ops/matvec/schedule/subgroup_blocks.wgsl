// A row of blocks to LANES lanes of a subgroup: a lane takes 32 weights of one scale at a time.
// import: grid, matvec/rows/file_blocks
// requires: override Y_OFFSET, ROWS: u32
// requires: fn old_y(at: u32) -> f32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
// requires: fn x_four(vector: u32, i: u32) -> vec4<f32>
override WG: u32 = 256u;
override LANES: u32 = 32u; // a power of two
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let lanes = min(LANES, sg);
    let slot = subgroup * (sg / lanes) + lane / lanes;
    let rows = WG / LANES;
    let row = group_index(workgroup, groups) * rows + slot;
    let live = slot < rows && row < ROWS;
    // Without a row of its own a group of lanes repeats the last one and drops the result.
    let base = min(row, ROWS - 1u) * file_row_bytes();
    var sum = 0.0;
    for (var c = lane % lanes; c < (K + 31u) / 32u; c += lanes) {
        let at = block_of(base, c);
        let s = file_scales(at);
        var first = vec4<f32>(0.0);
        var last = vec4<f32>(0.0);
        var all = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
            let v = x_four(0u, 8u * c + i);
            first += values(codes(at, i)) * v;
            all += v;
        }
        for (var i = 4u; i < 8u; i++) {
            let v = x_four(0u, 8u * c + i);
            last += values(codes(at, i)) * v;
            all += v;
        }
        let one = vec4<f32>(1.0);
        switch WEIGHT {
            case Q8_0, Q4_0, Q5_0: { sum += s.x * dot(first + last, one); }
            case Q6_K: { sum += s.x * dot(first, one) + s.y * dot(last, one); }
            default: { sum += s.x * dot(first + last, one) + s.y * dot(all, one); }
        }
    }
    for (var step = lanes / 2u; step > 0u; step /= 2u) { sum += subgroupShuffleXor(sum, step); }
    if (live && lane % lanes == 0u) { store_y(Y_OFFSET + row, sum, old_y(Y_OFFSET + row)); }
}
