// Second stage of split attention: it combines the partial softmaxes of the splits. A row has one softmax: it
// is a query head, of one token or of each token of a prompt. A workgroup makes COMBINE_FOURS vec4 of the
// rows, which lie one after another. COMBINE / COMBINE_FOURS invocations share the splits of each vec4 and
// load four splits at a time: up to 4 COMBINE / COMBINE_FOURS splits are all loaded at once.
// import: attention/parts/softmax, format/store_four, grid
// requires: override HEAD_DIM: u32
// requires: var partials: array<vec4<f32>>
// requires: var tops: array<vec2<f32>>
// requires: fn combined_rows() -> u32
// requires: fn partial_of(row: u32, split: u32) -> u32
// requires: fn row_output(row: u32) -> u32
// requires: fn splits() -> u32
// requires: fn splits_to_combine(row: u32) -> u32
override COMBINE: u32 = 256u;
override COMBINE_FOURS: u32 = 8u;

var<workgroup> combine_maxima: array<vec2<f32>, COMBINE>;
var<workgroup> combine_outputs: array<vec4<f32>, COMBINE>;

// A split's result for a row: its largest score and its sum of weights (`top`), and one vec4 of its weighted
// sum of V. Weights are relative to the largest score.
struct SplitOutput { top: vec2<f32>, sum: vec4<f32> }

// The loads do not wait for `used`: what lies behind the splits in use is replaced afterwards.
fn load_split_output(row: u32, four: u32, split: u32, used: u32) -> SplitOutput {
    let at = partial_of(row, min(split, splits() - 1u));
    let at_work = vec4<bool>(split < used);
    return SplitOutput(
        select(vec2<f32>(LOWEST, 0.0), tops[at], at_work.xy),
        select(vec4<f32>(0.0), partials[at * (HEAD_DIM / 4u) + four], at_work),
    );
}

// `a` with its weights relative to the score `most`.
fn scaled(a: SplitOutput, most: f32) -> SplitOutput {
    let weight = exp2(a.top.x - most);
    return SplitOutput(vec2<f32>(most, a.top.y * weight), a.sum * weight);
}

// Combines every `parts`-th split from `part` on, for one vec4 of a row.
fn share_of_splits(row: u32, four: u32, part: u32, parts: u32, used: u32) -> SplitOutput {
    var all = SplitOutput(vec2<f32>(LOWEST, 0.0), vec4<f32>(0.0));
    for (var begin = 0u; begin < splits(); begin += 4u * parts) {
        let split = begin + part;
        let a = load_split_output(row, four, split, used);
        let b = load_split_output(row, four, split + parts, used);
        let c = load_split_output(row, four, split + 2u * parts, used);
        let d = load_split_output(row, four, split + 3u * parts, used);
        let most = max(max(max(a.top.x, b.top.x), max(c.top.x, d.top.x)), all.top.x);
        let e = scaled(a, most);
        let f = scaled(b, most);
        let g = scaled(c, most);
        let h = scaled(d, most);
        let before = scaled(all, most);
        all = SplitOutput(
            vec2<f32>(most, before.top.y + (e.top.y + f.top.y) + (g.top.y + h.top.y)),
            before.sum + (e.sum + f.sum) + (g.sum + h.sum),
        );
    }
    return all;
}

@compute @workgroup_size(COMBINE)
fn combine(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let all_fours = combined_rows() * (HEAD_DIM / 4u);
    let blocks = (all_fours + COMBINE_FOURS - 1u) / COMBINE_FOURS;
    let at = flat_index(workgroup, groups, blocks) * COMBINE_FOURS + lid % COMBINE_FOURS;
    let row = min(at, all_fours - 1u) / (HEAD_DIM / 4u);
    let four = min(at, all_fours - 1u) % (HEAD_DIM / 4u);
    let part = lid / COMBINE_FOURS;
    let parts = COMBINE / COMBINE_FOURS;
    let used = splits_to_combine(row);

    let all = share_of_splits(row, four, part, parts, used);
    combine_maxima[lid] = all.top;
    combine_outputs[lid] = all.sum;
    workgroupBarrier();
    for (var step = parts / 2u; step > 0u; step /= 2u) {
        if (part < step) {
            let far = lid + step * COMBINE_FOURS;
            let most = max(combine_maxima[lid].x, combine_maxima[far].x);
            let mine = scaled(SplitOutput(combine_maxima[lid], combine_outputs[lid]), most);
            let other = scaled(SplitOutput(combine_maxima[far], combine_outputs[far]), most);
            combine_maxima[lid] = vec2<f32>(most, mine.top.y + other.top.y);
            combine_outputs[lid] = mine.sum + other.sum;
        }
        workgroupBarrier();
    }
    if (part == 0u && at < all_fours && used > 0u) {
        store_four(row_output(row) + four, combine_outputs[lid] / combine_maxima[lid].y);
    }
}
