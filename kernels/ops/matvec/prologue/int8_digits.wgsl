// Activations quantised in workgroup memory, and chunks of SoA rows times them, four products an
// instruction (dot4I8Packed).
//
//   BYTES             bytes of a quantised activation, 1 to 3
//   LARGEST           its largest value: 127, 127 * 256 + 127, or 4161400
//   N_VECTORS         vectors in x
//   X_VECTORS         those of them in memory; their blocks follow each other in every run
//   x_four(vector, i) elements 4i..4i+4 of a vector of x, zeros past its end
//   has_norm()        whether sums of squares are wanted, and
//   squares_of(i)     the sum of these four squared
//
// An activation is 65536 * top + 256 * high + low, as many of them as it has bytes, all signed.
//
// Of three bytes quants of four bits go as they lie there. A byte of them, a signed number, is
// low + 16 * (high - 8), so that low * a + high * b is low * (a - b / 16) + byte * (b / 16) + 8 * b: the
// first factor takes one mask, the second nothing, and the last term is of the activations alone.
// Rounded is what the quants meet, a - b / 16 and b / 16: of b four bits less remain.
// import: matvec/rows/soa
// requires: override N_VECTORS, WG, X_VECTORS: u32
// requires: const BYTES: u32
// requires: const LARGEST: f32
// requires: fn has_norm() -> bool
// requires: fn squares_of(i: u32) -> f32
// requires: fn x_four(vector: u32, i: u32) -> vec4<f32>

// Rounded activations of a block of 32. In word j of a block's weights, eight of them, even nibbles
// meet what `evens` holds, odd ones `odds`; q8_0 has four weights a word, the first four meet
// `evens`. With two bytes vec4 j is (evens, odds) of the high bytes and of the low ones; with one
// it is (evens, odds) for words 2j and 2j + 1, and so are vec4 4 and 5 of three bytes, for the top
// ones. First comes vec4 0 of every block, then vec4 1 and so on: lanes with neighbouring blocks
// read neighbouring vec4, one from every bank.
override BLOCKS: u32 = (K + 31u) / 32u;
override SPAN: u32 = X_VECTORS * BLOCKS;
override RUNS: u32 = 2u * BYTES * SPAN;
var<workgroup> rounded: array<vec4<u32>, RUNS>;
// Of a block: the step between integers, the sum of its activations, and what its products lack for zero
// points, and 8 * b of above (of q6_k its halves'). Up to two bytes the sums are of rounded activations,
// so that what remains of the rounding is that of weights, not of quants, and what is lacking is an integer
// of steps; three bytes need neither.
var<workgroup> about: array<vec4<u32>, SPAN>;

// Bytes 1 and bytes 0 of four words.
fn high_low(v: vec4<u32>) -> vec2<u32> {
    let even = (v.x & 0xffffu) | (v.z << 16u);
    let odd = (v.y & 0xffffu) | (v.w << 16u);
    let low = (even & 0x00ff00ffu) | ((odd & 0x00ff00ffu) << 8u);
    return vec2<u32>(((even >> 8u) & 0x00ff00ffu) | (odd & 0xff00ff00u), low);
}

// Bytes 2 of four words.
fn top_bytes(v: vec4<u32>) -> u32 {
    let even = (v.x >> 16u) | (v.z & 0xffff0000u);
    let odd = (v.y >> 16u) | (v.w & 0xffff0000u);
    return (even & 0x00ff00ffu) | ((odd & 0x00ff00ffu) << 8u);
}

// Whether quants go as they lie there.
fn folds() -> bool { return BYTES == 3u && (WEIGHT == Q4_0 || WEIGHT == Q4_1 || WEIGHT == Q4_K); }

fn has_minimum() -> bool { return WEIGHT == Q4_1 || WEIGHT == Q5_1 || WEIGHT == Q4_K || WEIGHT == Q5_K; }

fn zero_point() -> i32 {
    switch WEIGHT {
        case Q4_0: { return 8; }
        case Q5_0: { return 16; }
        case Q6_K: { return 32; }
        default: { return 0; }
    }
}

// Of eight activations their sum, where minimums take it, and what products lack.
fn terms_of(a: vec4<f32>, b: vec4<f32>) -> vec2<f32> {
    let even = (a.x + a.z) + (b.x + b.z);
    let odd = (a.y + a.w) + (b.y + b.w);
    switch WEIGHT {
        case Q4_0: { return vec2<f32>(0.0, -8.0 * even); }
        case Q4_1, Q4_K: { return vec2<f32>(even + odd, 8.0 * odd); }
        case Q5_0, Q6_K: { return vec2<f32>(0.0, -f32(zero_point()) * (even + odd)); }
        default: { return vec2<f32>(even + odd, 0.0); }
    }
}

fn ones(v: vec2<u32>) -> i32 {
    return dot4I8Packed(v.x, 0x01010101u) + dot4I8Packed(v.y, 0x01010101u);
}

// Sums of squares, one a subgroup.
override SQUARES: u32 = WG / 4u;
var<workgroup> square_sums: array<f32, SQUARES>;

// Of two neighbours a and b: a - b / 16 and b / 16.
fn folded(v: vec4<f32>) -> vec4<f32> {
    let second = v.yw * 0.0625;
    let first = v.xz - second;
    return vec4<f32>(first.x, second.x, first.y, second.y);
}

// Half i of eight elements, those of vectors `first` on after each other: the first four of half 2j and
// the last of 2j + 1 are eight neighbours. The last vector again past it.
fn half_eight(first: u32, i: u32) -> vec4<f32> {
    if (X_VECTORS == 1u) { return x_four(first, i); }
    let vector = i / (8u * BLOCKS);
    return x_four(min(first + vector, N_VECTORS - 1u), i - 8u * BLOCKS * vector);
}

// Rounds vectors `first` on into workgroup memory, eight elements a lane, four neighbouring lanes a
// block; what these share goes through the subgroup. Afterwards needs a barrier.
fn round_x(first: u32, subgroup: u32, size: u32, lane: u32) {
    let at = subgroup * size + lane;
    let end = 4u * SPAN;
    var square = 0.0;
    var a = vec4<f32>(0.0);
    var b = vec4<f32>(0.0);
    if (at < end) {
        a = half_eight(first, 2u * at);
        b = half_eight(first, 2u * at + 1u);
    }
    for (var start = 0u; start < end; start += WG) {
        let i = start + at;
        // The next elements are on their way while these are rounded.
        var next_a = vec4<f32>(0.0);
        var next_b = vec4<f32>(0.0);
        if (i + WG < end) {
            next_a = half_eight(first, 2u * (i + WG));
            next_b = half_eight(first, 2u * (i + WG) + 1u);
        }
        if (has_norm() && i < end) { square += squares_of(2u * i) + squares_of(2u * i + 1u); }
        // Of half a block and of the other, while its largest magnitude is looked for.
        var terms = vec2<f32>(0.0);
        var other_terms = vec2<f32>(0.0);
        if (BYTES == 3u) {
            terms = terms_of(a, b);
            terms += subgroupShuffleXor(terms, 1u);
            other_terms = subgroupShuffleXor(terms, 2u);
        }
        if (folds()) {
            a = folded(a);
            b = folded(b);
        }
        // Magnitudes compare as their bits do, and a NaN, which a maximum of floats may drop, lies
        // above all: it becomes the step and so every product.
        let bits = max(bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu),
            bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu));
        var top = max(max(bits.x, bits.y), max(bits.z, bits.w));
        top = max(top, subgroupShuffleXor(top, 1u));
        top = max(top, subgroupShuffleXor(top, 2u));
        let most = bitcast<f32>(top);
        let step = most * (1.0 / LARGEST);
        // Of a block of zeros, or of numbers too small for their inverse, nothing is left.
        let inverse = select(0.0, LARGEST / most, most > 1e-30);
        // Near 1.5 * 2^23 floats are 1 apart: the sum rounds, and its low bits are the integer in
        // two's complement. With 128 more, byte 1 is the high byte of the nearest multiple of 256,
        // and byte 0 the rest plus 128. With 32768 more, byte 1 is that of the rest too, and the
        // seven bits above it are the top byte plus 64.
        var shift = vec4<f32>(12582912.0);
        if (BYTES == 2u) { shift = vec4<f32>(12582912.0 + 128.0); }
        if (BYTES == 3u) { shift = vec4<f32>(12582912.0 + 32768.0 + 128.0); }
        let u = bitcast<vec4<u32>>(a * inverse + shift);
        let v = bitcast<vec4<u32>>(b * inverse + shift);
        var p = high_low(vec4<u32>(u.xz, v.xz));
        var q = high_low(vec4<u32>(u.yw, v.yw));
        var tops = vec2<u32>(0u);
        if (BYTES == 3u) {
            tops = vec2<u32>(top_bytes(vec4<u32>(u.xz, v.xz)), top_bytes(vec4<u32>(u.yw, v.yw)));
        }
        if (WEIGHT == Q8_0) {
            p = high_low(u);
            q = high_low(v);
            if (BYTES == 3u) { tops = vec2<u32>(top_bytes(u), top_bytes(v)); }
        }
        var high = vec2<u32>(0u);
        var low = vec2<u32>(p.y, q.y);
        if (BYTES > 1u) {
            high = vec2<u32>(p.x, q.x);
            low ^= vec2<u32>(0x80808080u);
        }
        if (BYTES == 3u) {
            high ^= vec2<u32>(0x80808080u);
            // Of seven bits the sign is the inverse of the upper one.
            tops ^= vec2<u32>(0x40404040u);
            tops = (tops & vec2<u32>(0x7f7f7f7fu)) | ((tops & vec2<u32>(0x40404040u)) << vec2<u32>(1u));
        }
        // Of what counts as zeros nothing else is left either.
        terms = select(vec2<f32>(0.0), terms, vec2<bool>(inverse != 0.0));
        other_terms = select(vec2<f32>(0.0), other_terms, vec2<bool>(inverse != 0.0));
        var lacks = bitcast<vec2<u32>>(vec2<f32>(terms.y, other_terms.y));
        if (WEIGHT != Q6_K) { lacks.x = bitcast<u32>(terms.y + other_terms.y); }
        var all = terms.x + other_terms.x;
        if (BYTES < 3u) {
            var sum = 256 * ones(high) + ones(low);
            sum += subgroupShuffleXor(sum, 1u);
            let other = subgroupShuffleXor(sum, 2u);
            all = step * f32(sum + other);
            lacks = bitcast<vec2<u32>>(vec2<i32>(-zero_point()) * vec2<i32>(sum, other));
            if (WEIGHT != Q6_K) { lacks.x += lacks.y; }
        }

        let slot = i % 4u;
        if (BYTES > 1u && i < end) { rounded[slot * SPAN + i / 4u] = vec4<u32>(high, low); }
        if (BYTES != 2u) {
            let mine = select(tops, low, vec2<bool>(BYTES == 1u));
            let beside = subgroupShuffleXor(mine, 1u);
            if (i < end && i % 2u == 0u) {
                let run = select(4u, 0u, BYTES == 1u) + slot / 2u;
                rounded[run * SPAN + i / 4u] = vec4<u32>(mine, beside);
            }
        }
        if (i < end && slot == 0u) {
            about[i / 4u] = vec4<u32>(bitcast<u32>(step), bitcast<u32>(all), lacks);
        }
        a = next_a;
        b = next_b;
    }
    if (has_norm()) {
        square = subgroupAdd(square);
        if (lane == 0u) { square_sums[subgroup] = square; }
    }
}

// Sum of what round_x met squared, after the barrier.
fn all_squares(size: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < WG / size; i++) { sum += square_sums[i]; }
    return sum;
}

// What a chunk meets: its first two words a (and b, and the top bytes e), its last two c (and d, f).
struct Rounded {
    a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32>, e: vec4<u32>, f: vec4<u32>,
    about: vec4<u32>,
}

fn load_rounded(vector: u32, c: u32) -> Rounded {
    var v: Rounded;
    if (WEIGHT == Q8_0) {
        // A chunk of q8_0 is half a block.
        let block = vector * BLOCKS + c / 2u;
        let at = c % 2u * min(BYTES, 2u) * SPAN + block;
        v.a = rounded[at];
        if (BYTES > 1u) { v.b = rounded[at + SPAN]; }
        if (BYTES == 3u) { v.e = rounded[(4u + c % 2u) * SPAN + block]; }
        v.about = about[block];
        return v;
    }
    let block = vector * BLOCKS + c;
    v.a = rounded[block];
    v.c = rounded[min(BYTES, 2u) * SPAN + block];
    if (BYTES > 1u) {
        v.b = rounded[SPAN + block];
        v.d = rounded[3u * SPAN + block];
    }
    if (BYTES == 3u) {
        v.e = rounded[4u * SPAN + block];
        v.f = rounded[5u * SPAN + block];
    }
    v.about = about[block];
    return v;
}

fn moved(v: u32, left: i32) -> u32 {
    if (left < 0) { return v >> u32(-left); }
    return v << u32(left);
}

// The quants of word j of a chunk in bytes: even places, odd places; or even ones and both. A shift and
// an and-or bring what upper bits two of four quants have.
fn code_bytes(chunk: SoaChunk, j: u32) -> vec2<u32> {
    if (folds()) { return vec2<u32>(chunk.codes[j] & 0x0f0f0f0fu, chunk.codes[j]); }
    var w = vec2<u32>(chunk.codes[j], chunk.codes[j] >> 4u) & vec2<u32>(0x0f0f0f0fu);
    switch WEIGHT {
        case Q4_0, Q4_1, Q4_K: { w.y ^= 0x08080808u; }
        case Q5_0, Q5_1, Q5_K: {
            let h = chunk.high.x;
            let at = 4 * i32(j);
            w |= vec2<u32>(moved(h, 4 - at), moved(h, 3 - at)) & vec2<u32>(0x00100010u);
            w |= vec2<u32>(moved(h, 10 - at), moved(h, 9 - at)) & vec2<u32>(0x10001000u);
        }
        case Q6_K: {
            let h = chunk.high[j / 2u];
            let at = 8 * i32(j % 2u);
            w |= vec2<u32>(moved(h, 4 - at), moved(h, 2 - at)) & vec2<u32>(0x00300030u);
            w |= vec2<u32>(moved(h, 8 - at), moved(h, 6 - at)) & vec2<u32>(0x30003000u);
        }
        default: {}
    }
    return w;
}

// Sums of products with top, high and low bytes.
struct DigitSums { top: i32, high: i32, low: i32 }

// Adds products of two words of weights with sixteen activations to `on`. 256 * high + low is at most
// 32 * 63 * 32639 in size, of quants as they lie there 32 * 72 * 32639 (q8_0: 16 * 128 * 32639), a
// thirtieth of what an i32 holds; the top bytes' times 65536 would not fit.
fn byte_products(p: vec2<u32>, q: vec2<u32>, a: vec4<u32>, b: vec4<u32>, e: vec4<u32>, on: DigitSums) -> DigitSums {
    if (BYTES == 1u) { return DigitSums(0, 0, four_words(p, q, a, on.low)); }
    var sums = on;
    if (BYTES == 3u) { sums.top = four_words(p, q, e, on.top); }
    sums.high = four_words(p, q, vec4<u32>(a.xy, b.xy), on.high);
    sums.low = four_words(p, q, vec4<u32>(a.zw, b.zw), on.low);
    return sums;
}

// Quants of two words with as many bytes of activations.
fn four_words(p: vec2<u32>, q: vec2<u32>, a: vec4<u32>, on: i32) -> i32 {
    return on + dot4I8Packed(p.x, a.x) + dot4I8Packed(p.y, a.y)
        + dot4I8Packed(q.x, a.z) + dot4I8Packed(q.y, a.w);
}

// Products of quants less their zero points, as an integer as long as it fits.
fn joined(sums: DigitSums, step: f32, lacks: u32) -> f32 {
    let lower = 256 * sums.high + sums.low;
    let lacking = folds() || zero_point() != 0;
    if (BYTES < 3u) { return step * f32(lower + select(0, bitcast<i32>(lacks), lacking)); }
    let product = step * (65536.0 * f32(sums.top) + f32(lower));
    if (lacking) { return product + bitcast<f32>(lacks); }
    return product;
}

// A chunk's quants in bytes, a word (q8_0: half a word) of them each, and its scales.
struct Codes { a: vec2<u32>, b: vec2<u32>, c: vec2<u32>, d: vec2<u32>, scale: vec2<f32> }

fn codes_of(chunk: SoaChunk, c: u32) -> Codes {
    var w: Codes;
    w.scale = soa_scales(chunk.scale, c);
    if (WEIGHT == Q8_0) {
        w.a = chunk.codes.xy;
        w.b = chunk.codes.zw;
        return w;
    }
    w.a = code_bytes(chunk, 0u);
    w.b = code_bytes(chunk, 1u);
    w.c = code_bytes(chunk, 2u);
    w.d = code_bytes(chunk, 3u);
    return w;
}

// A chunk's part of the product.
fn dot_rounded(w: Codes, v: Rounded) -> f32 {
    let f = w.scale;
    let step = bitcast<f32>(v.about.x);
    let first = byte_products(w.a, w.b, v.a, v.b, v.e, DigitSums());
    if (WEIGHT == Q8_0) { return f.x * joined(first, step, 0u); }
    if (WEIGHT == Q6_K) {
        let last = byte_products(w.c, w.d, v.c, v.d, v.f, DigitSums());
        return f.x * joined(first, step, v.about.z) + f.y * joined(last, step, v.about.w);
    }
    let all = byte_products(w.c, w.d, v.c, v.d, v.f, first);
    let product = f.x * joined(all, step, v.about.z);
    if (!has_minimum()) { return product; }
    return product + f.y * bitcast<f32>(v.about.y);
}
