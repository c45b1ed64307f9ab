// Second stage of split decode attention: the splits' partial softmaxes become one. A workgroup
// makes COMBINE_FOURS fours of a head; COMBINE / COMBINE_FOURS invocations share the splits of
// each, with a trip count known when compiled: all loads can be on their way at once.
override COMBINE: u32 = 256u;
const COMBINE_FOURS: u32 = 8u;

var<workgroup> part_tops: array<vec2<f32>, COMBINE>;
var<workgroup> part_sums: array<vec4<f32>, COMBINE>;

@compute @workgroup_size(COMBINE)
fn combine(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let fours = HEAD_DIM / 4u;
    let blocks = (fours + COMBINE_FOURS - 1u) / COMBINE_FOURS;
    let head = workgroup.x / blocks;
    let four = workgroup.x % blocks * COMBINE_FOURS + lid % COMBINE_FOURS;
    let part = lid / COMBINE_FOURS;
    let parts = COMBINE / COMBINE_FOURS;
    let used = used_splits(attended());

    var top = vec2<f32>(LOWEST, 0.0);
    var sum = vec4<f32>(0.0);
    for (var begin = 0u; begin < splits(); begin += parts) {
        let split = begin + part;
        // The loads do not wait for `used`; what lies beyond the splits at work may be anything.
        let at = ((head / GROUP) * splits() + min(split, splits() - 1u)) * GROUP + head % GROUP;
        let at_work = vec4<bool>(split < used);
        let its_top = select(vec2<f32>(LOWEST, 0.0), tops[at], at_work.xy);
        let its_sum =
            select(vec4<f32>(0.0), partials[at * fours + min(four, fours - 1u)], at_work);
        let most = max(top.x, its_top.x);
        let mine = exp2(top.x - most);
        let other = exp2(its_top.x - most);
        top = vec2<f32>(most, top.y * mine + its_top.y * other);
        sum = sum * mine + its_sum * other;
    }
    part_tops[lid] = top;
    part_sums[lid] = sum;
    workgroupBarrier();
    for (var step = parts / 2u; step > 0u; step /= 2u) {
        if (part < step) {
            let far = lid + step * COMBINE_FOURS;
            let most = max(part_tops[lid].x, part_tops[far].x);
            let mine = exp2(part_tops[lid].x - most);
            let other = exp2(part_tops[far].x - most);
            part_tops[lid] =
                vec2<f32>(most, part_tops[lid].y * mine + part_tops[far].y * other);
            part_sums[lid] = part_sums[lid] * mine + part_sums[far] * other;
        }
        workgroupBarrier();
    }
    if (part == 0u && four < fours) {
        store_four(head * fours + four, part_sums[lid] / part_tops[lid].y);
    }
}
