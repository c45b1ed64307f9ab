// The definition of `sample` (lathe_reference::sample): what rounds, rounds as there, and all else is
// integers, so that no order of adding matters and every device draws the same token.
// import: math/u64, sort/key, step/choose
// requires: var state: array<u32>
override TEMPERATURE: f32;
override TOP_K: u32; // 0: all
override TOP_P: f32; // 1 and above: all
override REPEAT_PENALTY: f32; // 1: none
override LAST_N: u32; // seen tokens the penalty looks at; 0: all
// Constants in f32, rounded once.
override EXPONENT: f32 = 1.4426950408889634 / max(TEMPERATURE, 1e-37);
override INVERSE: f32 = 1.0 / REPEAT_PENALTY;
override SCALE: f32 = select(min(TEMPERATURE * 0.6931471805599453, 1e29), 0.0, TEMPERATURE < 1e-30);

// First position the penalty looks at; the last is the current one.
fn window_start() -> u32 {
    let seen = state[POSITION] + 1u;
    return select(seen - min(LAST_N, seen), 0u, LAST_N == 0u);
}

// A logit's key, penalised if its token was seen. One that is not finite is the largest float, which
// wins every draw, and its choice is NO_TOKEN.
fn key_of(logit: f32, seen: bool) -> u32 {
    if (is_not_finite(logit)) { return sort_key(NOT_FINITE); }
    let l = canonical(logit);
    if (!seen) { return sort_key(l); }
    return sort_key(canonical(l * select(REPEAT_PENALTY, INVERSE, l > 0.0)));
}

fn high_product(a: u32, b: u32) -> u32 { return mul64(a, b).y; }

// How far the score of a key is below that of the top: halvings of its weight, with 26 fractional bits.
const WEIGHTLESS: u32 = 0xffffffffu;
fn halvings_below(key: u32, top: u32) -> u32 {
    if (key == top) { return 0u; }
    let t = (value_of(top) - value_of(key)) * EXPONENT;
    if (!(t < 63.0)) { return WEIGHTLESS; }
    return u32(t * 67108864.0);
}

// 2^(-(score of top - score of key) * log2(e) / T) in units of 2^-40.
fn weight_of(key: u32, top: u32) -> vec2<u32> { return weight_below(halvings_below(key, top)); }

// The same of so many halvings.
fn weight_below(fixed: u32) -> vec2<u32> {
    if (fixed == WEIGHTLESS) { return vec2<u32>(0u); }
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

// Random words of tokens 4v..4v+4: Philox4x32-10 (Salmon et al., SC11) at counter (position, v, 0, 0),
// key (seed, 0).
fn random_words(v: u32) -> vec4<u32> {
    var c = vec4<u32>(state[POSITION], v, 0u, 0u);
    var k = vec2<u32>(state[SEED], 0u);
    for (var round = 0u; round < 10u; round++) {
        let p = mul64(0xd2511f53u, c.x);
        let q = mul64(0xcd9e8d57u, c.z);
        c = vec4<u32>(q.y ^ c.y ^ k.x, q.x, p.y ^ c.w ^ k.y, p.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// How far log2(1 + x) bulges beyond its chord, divided by x (1 - x), in units of 2^-17; x in 2^-16.
fn bulge(x: u32) -> u32 {
    var tail = 12740u - ((x * 3367u) >> 16u);
    tail = 24130u - ((x * tail) >> 16u);
    tail = 36251u - ((x * tail) >> 16u);
    return 58020u - ((x * tail) >> 16u);
}

// The first 16 fractional bits of a word whose highest bit is one.
fn fraction(mantissa: u32) -> u32 { return (mantissa >> 15u) & 0xffffu; }

// -log2(-log2(u)), u = (word | 1) / 2^32, cut to 16 fractional bits.
fn noise(word: u32) -> f32 {
    // -log2(u) is value * 2^exponent; near u = 1 it keeps all bits of 1 - u.
    let halvings = countLeadingZeros(word | 1u);
    let mantissa = (word | 1u) << halvings;
    let rest = ~mantissa + 1u;
    let share = 65536u - ((fraction(mantissa) * bulge(fraction(mantissa))) >> 17u);
    let shift = countLeadingZeros(rest);
    var value = ((rest << shift) >> 16u) * share;
    var exponent = -31 - i32(shift);
    if (halvings > 0u) {
        value = (halvings << 26u) + (((rest >> 16u) * share) >> 5u);
        exponent = -26;
    }
    let lead = countLeadingZeros(value);
    let x = fraction(value << lead);
    let log2 = x + ((((x * (65536u - x)) >> 16u) * bulge(x)) >> 17u);
    // A product, for a division may round.
    return f32(-((31 - i32(lead) + exponent) * 65536 + i32(log2))) * 0.0000152587890625;
}

// Logit and noise; the token with the largest sum is drawn. The product loses its last bit, so that no
// compiler joins it with the sum in one rounding.
fn noisy(key: u32, word: u32) -> f32 {
    let product = bitcast<u32>(noise(word) * SCALE) & 0xfffffffeu;
    return canonical(value_of(key) + bitcast<f32>(product));
}

// The random word of a token by itself.
fn random_word(token: u32) -> u32 { return random_words(token / 4u)[token % 4u]; }

// Logit and noise of such a token.
fn noisy_token(key: u32, token: u32) -> f32 { return noisy(key, random_word(token)); }
