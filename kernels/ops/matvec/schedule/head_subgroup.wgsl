// Four rows of a head a subgroup at a time: what is loaded of x serves all of them.
// import: grid
// requires: type Chunk, XChunk
// requires: override ROWS: u32
// requires: var weights: array<vec4<u32>>
// requires: fn begin_rows(lid: u32)
// requires: fn end_rows(lid: u32, group: u32)
// requires: fn dot_chunk(chunk: Chunk, v: XChunk) -> f32
// requires: fn load_x_chunk(c: u32) -> XChunk
// requires: fn push_logit(row: u32, at: u32, logit: f32)
// requires: fn row_chunks() -> u32
override WG: u32 = 256u;
override ROWS_PER_WG: u32 = 128u; // a multiple of 4
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

fn group_rows() -> u32 { return ROWS_PER_WG; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let sg = select(SG, size, SG == 0u);
    let group = group_index(workgroup, grid);
    begin_rows(lid);
    for (var r = 4u * subgroup; r < ROWS_PER_WG; r += 4u * subgroups) {
        let row = group * ROWS_PER_WG + r;
        if (row >= ROWS) { break; }
        // Rows past the end repeat the last one: loads stay inside, results are dropped.
        let last = ROWS - 1u;
        let base0 = row * row_chunks();
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
        if (lane < 4u && row + lane < ROWS) { push_logit(row + lane, r + lane, total[lane]); }
    }
    end_rows(lid, group);
}
