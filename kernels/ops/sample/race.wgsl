// sample/race: where all tokens stay, the largest sum of logit and noise.
//
//   token = the draw of lathe_reference::sample without top-k and top-p: the largest l + T ln 2 g after
//   the penalty, of equal sums the lower index; then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state  winners: (BLOCKS, 2), value and token
//
// Idea: no token needs to know of another's weight, so drawing is an argmax. The whole GPU reads the
// logits once, and the last workgroup takes the best of the blocks. Two dependent dispatches.
// import: grid, sample/parts/lanes, sample/parts/sampling, sample/parts/vectors
// import: step/choose, step/choose_workgroup
override WG: u32 = 256u; // a power of two
override BLOCKS: u32 = 128u; // workgroups that share the logits

@group(0) @binding(3) var<storage, read_write> winners: array<u32>;

@compute @workgroup_size(WG)
fn race(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let block = group_index(workgroup, groups);
    if (block >= BLOCKS) { return; }
    var best = NOBODY;
    for (var first = block * WG; first < vectors(); first += BLOCKS * WG) {
        let seen = seen_by_lane(lid, first);
        let v = first + lid;
        if (v < vectors()) {
            let four = keys_of(v, seen);
            let words = random_words(v);
            for (var i = 0u; i < 4u; i++) {
                if (four[i] > 0u) { best = better(best, Candidate(noisy(four[i], words[i]), 4u * v + i)); }
            }
        }
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) {
        winners[2u * block] = bitcast<u32>(best.value);
        winners[2u * block + 1u] = best.index;
    }
}

@compute @workgroup_size(WG)
fn choose(@builtin(local_invocation_index) lid: u32) {
    var best = NOBODY;
    for (var b = lid; b < BLOCKS; b += WG) {
        best = better(best, Candidate(bitcast<f32>(winners[2u * b]), winners[2u * b + 1u]));
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step(best); }
}
