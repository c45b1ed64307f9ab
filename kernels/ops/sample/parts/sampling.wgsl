// The definition of `sample` (lathe_reference::sample): what rounds, rounds as there, and sums are
// integers, so that no order of adding matters and every device draws the same token.
// import: math/u64, sort/key, step/state
// requires: var state: array<u32>
override TEMPERATURE: f32;
override TOP_K: u32; // 0: all
override TOP_P: f32; // 1 and above: all
override REPEAT_PENALTY: f32; // 1: none
override LAST_N: u32; // seen tokens the penalty looks at; 0: all
// The two constants in f32, rounded once.
override EXPONENT: f32 = 1.4426950408889634 / max(TEMPERATURE, 1e-37);
override INVERSE: f32 = 1.0 / REPEAT_PENALTY;

// Tokens that top-k keeps; the greedy choice is the first of them.
fn tokens_kept() -> u32 { return select(TOP_K, 1u, TEMPERATURE == 0.0); }

// First position the penalty looks at; the last is the current one.
fn window_start() -> u32 {
    let seen = state[POSITION] + 1u;
    return select(seen - min(LAST_N, seen), 0u, LAST_N == 0u);
}

// A logit's key, penalised if its token was seen.
fn key_of(logit: f32, seen: bool) -> u32 {
    let l = canonical(logit);
    if (!seen) { return sort_key(l); }
    return sort_key(canonical(l * select(REPEAT_PENALTY, INVERSE, l > 0.0)));
}

fn high_product(a: u32, b: u32) -> u32 { return mul64(a, b).y; }

// 2^(-(score of top - score of key) * log2(e) / T) in units of 2^-40.
fn weight_of(key: u32, top: u32) -> vec2<u32> {
    if (key == top) { return vec2<u32>(0u, 256u); }
    let t = (value_of(top) - value_of(key)) * EXPONENT;
    if (!(t < 63.0)) { return vec2<u32>(0u); }
    let fixed = u32(t * 67108864.0);
    let f = fixed << 6u;
    var tail = 0x00539803u - high_product(0x00072a3cu, f);
    tail = 0x0273d361u - high_product(tail, f);
    tail = 0x0e34a75bu - high_product(tail, f);
    tail = 0x3d7f577eu - high_product(tail, f);
    tail = 0xb17215b2u - high_product(tail, f);
    let power = 0x80000000u - (high_product(tail, f) >> 1u);
    let halvings = fixed >> 26u;
    let w = vec2<u32>(power << 9u, power >> 23u);
    if (halvings == 0u) { return w; }
    if (halvings >= 32u) { return vec2<u32>(w.y >> (halvings - 32u), 0u); }
    return vec2<u32>((w.x >> halvings) | (w.y << (32u - halvings)), w.y >> halvings);
}

// What a run must reach for top-p, at least one token.
fn needed_by_top_p(total: vec2<u32>) -> vec2<u32> {
    if (TOP_P >= 1.0) { return total; }
    let needed = share64(total, u32(TOP_P * 4294967296.0), true);
    return select(needed, vec2<u32>(1u, 0u), all(needed == vec2<u32>(0u)));
}

// What the first token of a run beyond u * total reaches.
fn needed_by_draw(total: vec2<u32>) -> vec2<u32> {
    return needed_by_word(total, uniform_word(state[SEED], state[POSITION]));
}

// The same with u in units of 2^-32.
fn needed_by_word(total: vec2<u32>, word: u32) -> vec2<u32> {
    return add64(share64(total, word, false), vec2<u32>(1u, 0u));
}

// The least number of tokens of weight w, of `most`, with which `above` reaches `needed`.
fn tokens_to_reach(needed: vec2<u32>, above: vec2<u32>, w: vec2<u32>, most: u32) -> u32 {
    var low = 1u;
    var high = most;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (reaches(add64(above, times64(w, middle)), needed)) { high = middle; } else { low = middle + 1u; }
    }
    return low;
}

fn times64(w: vec2<u32>, n: u32) -> vec2<u32> {
    return add64(mul64(w.x, n), vec2<u32>(0u, w.y * n));
}

// First word of Philox4x32-10 (Salmon et al., SC11) at counter (position, 0, 0, 0), key (seed, 0).
fn uniform_word(seed: u32, position: u32) -> u32 {
    var c = vec4<u32>(position, 0u, 0u, 0u);
    var k = vec2<u32>(seed, 0u);
    for (var round = 0u; round < 10u; round++) {
        let p = mul64(0xd2511f53u, c.x);
        let q = mul64(0xcd9e8d57u, c.z);
        c = vec4<u32>(q.y ^ c.y ^ k.x, q.x, p.y ^ c.w ^ k.y, p.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c.x;
}
