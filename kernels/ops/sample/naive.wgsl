// sample/naive: one workgroup, every cut found bit by bit.
//
//   token = the draw of lathe_reference::sample: penalty, 2^(-(max - l) log2(e) / T), top-k, top-p,
//   of those that stay the largest l + T ln 2 g; then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state  keys: (N)
//
// Idea: top-k and top-p are each the largest key from which on enough tokens or weight lies, and among
// tokens of that key the lower indices. Each of the 32 bits of a key reads all of them, with one core
// of the GPU.
// import: math/u64, reduce/sum64, sample/parts/sampling, step/choose, step/choose_workgroup
override N: u32;
override WG: u32 = 256u;

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;

// Tokens (low word, high 0) or weight of all keys from `key` up.
fn measure(lid: u32, key: u32, top: u32, weighed: bool) -> vec2<u32> {
    var sum = vec2<u32>(0u);
    for (var i = lid; i < N; i += WG) {
        if (keys[i] < key) { continue; }
        if (weighed) { sum = add64(sum, weight_of(keys[i], top)); } else { sum.x++; }
    }
    return workgroup_sum64(lid, sum);
}

// Tokens below `end` with this key.
fn ties_below(lid: u32, key: u32, end: u32) -> u32 {
    var sum = 0u;
    for (var i = lid; i < end; i += WG) { sum += select(0u, 1u, keys[i] == key); }
    return workgroup_sum64(lid, vec2<u32>(sum, 0u)).x;
}

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    for (var i = lid; i < N; i += WG) {
        var seen = false;
        if (REPEAT_PENALTY != 1.0) {
            for (var at = window_start(); at <= state[POSITION]; at++) {
                seen = seen || tokens[at] == i;
            }
        }
        keys[i] = key_of(logits[i], seen);
    }
    storageBarrier();
    workgroupBarrier();
    var top = 0u;
    var total = vec2<u32>(0u);
    var key = 0u;
    var rank = N;
    // Largest key, top-k and top-p; the last two leave the weight up to their last token.
    for (var round = 0u; round < 3u; round++) {
        if (round == 1u && (TOP_K == 0u || TOP_K >= N)) { continue; }
        if (round == 2u && TOP_P >= 1.0) { continue; }
        var needed = vec2<u32>(1u, 0u);
        if (round == 1u) { needed.x = TOP_K; }
        if (round == 2u) { needed = needed_by_top_p(total); }
        var last = 0u;
        for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
            if (reaches(measure(lid, last | bit, top, round > 1u), needed)) { last |= bit; }
        }
        if (round == 0u) {
            top = last;
            total = measure(lid, 0u, top, true);
            continue;
        }
        key = last;
        let above = measure(lid, key + 1u, top, true);
        let tokens_above = measure(lid, key + 1u, top, false).x;
        let equal = measure(lid, key, top, false).x - tokens_above;
        let w = weight_of(key, top);
        rank = TOP_K - tokens_above;
        if (round == 2u) { rank = tokens_to_reach(needed, above, w, equal); }
        total = add64(above, times64(w, rank));
    }
    // The token of that rank among equals: the largest i with fewer than `rank` of them below it.
    var token = 0u;
    for (var bit = 0x800000u; bit > 0u; bit >>= 1u) {
        if (ties_below(lid, key, min(token | bit, N)) < rank) { token |= bit; }
    }
    var best = NOBODY;
    for (var i = lid; i < N; i += WG) {
        let stays = keys[i] > key || (keys[i] == key && i <= token);
        if (stays) { best = better(best, Candidate(noisy_token(keys[i], i), i)); }
    }
    best = workgroup_best(lid, best);
    if (lid == 0u) { end_step(best); }
}
