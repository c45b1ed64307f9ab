// dequant/subgroup: one subgroup 256 columns, a superblock or eight blocks; scales broadcast.
//
// Idea: unpacking a scale costs more than the weight it is for. In each round of the subgroup a
// lane unpacks the scale of one sub-block, and a shuffle hands it to the lanes whose sixteen bytes
// of y lie there.
// import: dequant/parts/chunk, dequant/parts/packed, format/weight_four, grid
override WG: u32 = 256u;
override SPANS_PER_WG: u32 = 8u; // runs of 256 columns of a workgroup
override SG: u32 = 0u; // the adapter's only subgroup size, or 0: read it at run time

@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

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
    let spans = (K + 255u) / 256u;
    let first = group_index(workgroup, groups) * SPANS_PER_WG;
    // Every subgroup makes every round, so that the shuffles are in uniform control flow; spans
    // past the end repeat the last one and store nothing.
    for (var s = 0u; s < SPANS_PER_WG; s += subgroups) {
        let mine = first + s + subgroup;
        let valid = s + subgroup < SPANS_PER_WG && mine < ROWS * spans;
        let span = min(mine, ROWS * spans - 1u);
        let base = span / spans * ROW_BYTES;
        let begin = span % spans * 256u;
        let width = min(256u, K - begin);
        for (var round = 0u; round < 256u; round += sg * EACH) {
            // Sub-block `lane` of the round, then that of the lane's own elements.
            let first_sub = round / sub_elements();
            let sub = min((first_sub + lane) * sub_elements(), width - 1u);
            let at = begin + sub;
            let by = scale_addend(base, at / BLOCK, at % BLOCK);
            let e = round + lane * EACH;
            let own = e / sub_elements() - first_sub;
            let scale = subgroupShuffle(by.x, own);
            let addend = subgroupShuffle(by.y, own);
            if (valid && e < width) {
                let k = begin + e;
                let chunk = chunk_of(
                    base,
                    k / BLOCK,
                    k % BLOCK,
                    vec2<f32>(scale, addend),
                );
                y[(span / spans * K + k) / EACH] = chunk;
            }
        }
    }
}
