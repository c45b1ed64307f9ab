// sample/naive: one workgroup, every cut found bit by bit.
//
//   token = the draw of lathe_reference::sample: penalty, 2^(-(max - l) log2(e) / T), top-k, top-p,
//   first token whose cumulative weight exceeds u * total; then the step ends (see choose.wgsl)
//   logits: (N)  tokens: (positions)  state: the step state  keys: (N)
//
// Idea: top-k, top-p and draw are each the largest key from which on enough tokens or weight lies,
// and among tokens of that key the lower indices. Each of the 32 bits of a key reads all of them,
// with one core of the GPU.
// uses: state, choose, sampling, u64, sum64
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

// The largest key from which on `needed` is reached.
fn cut(lid: u32, needed: vec2<u32>, top: u32, weighed: bool) -> u32 {
    var key = 0u;
    for (var bit = 0x80000000u; bit > 0u; bit >>= 1u) {
        if (reaches(measure(lid, key | bit, top, weighed), needed)) { key |= bit; }
    }
    return key;
}

// Tokens with this key or a lower index than i.
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
    let top = cut(lid, vec2<u32>(1u, 0u), 0u, false);
    var total = measure(lid, 0u, top, true);
    let kept = tokens_kept();
    if (kept > 0u && kept < N) {
        let key = cut(lid, vec2<u32>(kept, 0u), top, false);
        let of_key = kept - measure(lid, key + 1u, top, false).x;
        let above = measure(lid, key + 1u, top, true);
        total = add64(above, times64(weight_of(key, top), of_key));
    }
    if (TOP_P < 1.0) {
        let needed = needed_by_top_p(total);
        let key = cut(lid, needed, top, true);
        let above = measure(lid, key + 1u, top, true);
        let w = weight_of(key, top);
        total = add64(above, times64(w, tokens_to_reach(needed, above, w, N)));
    }
    let needed = needed_by_draw(total);
    let key = cut(lid, needed, top, true);
    let above = measure(lid, key + 1u, top, true);
    let rank = tokens_to_reach(needed, above, weight_of(key, top), N);
    // The token of that rank among equals: the largest i with fewer than `rank` of them below it.
    var token = 0u;
    for (var bit = 0x800000u; bit > 0u; bit >>= 1u) {
        if (ties_below(lid, key, min(token | bit, N)) < rank) { token |= bit; }
    }
    if (lid == 0u) { finish(Candidate(0.0, token)); }
}
