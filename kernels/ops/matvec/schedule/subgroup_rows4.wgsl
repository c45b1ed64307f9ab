// Four rows a subgroup at a time: what is loaded of x serves all of them.
// import: grid
// requires: type Chunk, XChunk
// requires: override Y_OFFSET, ROWS: u32
// requires: var weights: array<vec4<u32>>
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_chunk(c: u32) -> XChunk
// requires: fn old_y(at: u32) -> f32
// requires: fn row_chunks() -> u32
// requires: fn store_y(at: u32, product: f32, y_before: f32)
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 32u; // a multiple of 4
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let first = group_index(workgroup, groups) * ROWS_PER_WG;
    // Every subgroup runs as many iterations: subgroup operations need uniform control flow.
    for (var turn = 0u; turn < ROWS_PER_WG; turn += 4u * subgroups) {
        let r = turn + 4u * subgroup;
        let row = first + r;
        // Rows past the end repeat the last one: loads stay inside, results are dropped.
        let last = ROWS - 1u;
        let base0 = min(row, last) * row_chunks();
        let base1 = min(row + 1u, last) * row_chunks();
        let base2 = min(row + 2u, last) * row_chunks();
        let base3 = min(row + 3u, last) * row_chunks();
        var sum = vec4<f32>(0.0);
        for (var c = lane; c < row_chunks(); c += sg) {
            let w0 = weights[base0 + c];
            let w1 = weights[base1 + c];
            let w2 = weights[base2 + c];
            let w3 = weights[base3 + c];
            let v = load_x_chunk(c);
            sum += vec4<f32>(
                dot_chunk(w0, v), dot_chunk(w1, v), dot_chunk(w2, v), dot_chunk(w3, v),
            );
        }
        let total = subgroupAdd(sum);
        if (lane < 4u && r < ROWS_PER_WG && row + lane < ROWS) {
            store_y(Y_OFFSET + row + lane, total[lane], old_y(Y_OFFSET + row + lane));
        }
    }
}
