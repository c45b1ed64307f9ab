// Quantised rows repacked as a structure of arrays (layout::Packing::Planes) against activations, sixteen
// bytes of quants (a chunk) at a time. Everything that depends on overrides alone folds to constants, so
// a pipeline holds one format's code.
// requires: var weights: array<vec4<u32>>
override WEIGHT: u32; // a quantised format
override ORDER: u32; // blocks along rows, across row ends or down columns
override ROWS: u32;
override K: u32;

// Weights in a chunk, all of one scale (q6_k: two).
fn soa_chunk_elements() -> u32 { return select(32u, 16u, WEIGHT == Q8_0); }

// Length of what was quantised as one: a row, the matrix, a column.
fn stream_elements() -> u32 {
    if (ORDER == ORDER_FLAT) { return ROWS * K; }
    if (ORDER == ORDER_COLUMN_WISE) { return ROWS; }
    return K;
}

fn stream_blocks() -> u32 {
    let len = select(32u, 256u, WEIGHT >= Q4_K);
    return (stream_elements() + len - 1u) / len;
}

// Where each field begins in a packed stream, in sixteen bytes: quants at 0, then their higher bits,
// scales, and q6_k's second scales.
fn high_start() -> u32 {
    if (WEIGHT >= Q4_K) { return 8u * stream_blocks(); }
    return select(1u, 2u, WEIGHT == Q8_0) * stream_blocks();
}

fn scale_start() -> u32 {
    switch WEIGHT {
        case Q5_0, Q5_1: { return high_start() + (stream_blocks() + 3u) / 4u; }
        case Q5_K: { return high_start() + 2u * stream_blocks(); }
        case Q6_K: { return high_start() + 4u * stream_blocks(); }
        default: { return high_start(); }
    }
}

fn second_start() -> u32 { return scale_start() + stream_blocks(); }

// From one packed stream to the next, in sixteen bytes.
fn stream_stride() -> u32 {
    switch WEIGHT {
        case Q8_0, Q4_0, Q5_0: { return scale_start() + (stream_blocks() + 7u) / 8u; }
        case Q4_1, Q5_1: { return scale_start() + (stream_blocks() + 3u) / 4u; }
        case Q4_K, Q5_K: { return second_start(); }
        default: { return second_start() + (stream_blocks() + 7u) / 8u; }
    }
}

// Chunks of a row of W, the packed stream it lies in, and its first chunk there. With ORDER_FLAT a
// row is a whole number of chunks.
fn soa_row_chunks() -> u32 { return (K + soa_chunk_elements() - 1u) / soa_chunk_elements(); }
fn stream_base(row: u32) -> u32 { return select(row, 0u, ORDER == ORDER_FLAT) * stream_stride(); }
fn stream_chunk(row: u32) -> u32 { return select(0u, row * soa_row_chunks(), ORDER == ORDER_FLAT); }

// A chunk as loaded: quants, their higher bits, and what its scales are made of.
struct SoaChunk { codes: vec4<u32>, high: vec2<u32>, scale: vec4<u32> }

fn weight_word(base: u32, i: u32) -> u32 { return weights[base + i / 4u][i % 4u]; }

// Chunk c of the stream that begins at `base`. No load waits for another.
fn load_soa_chunk(base: u32, c: u32) -> SoaChunk {
    var high = vec2<u32>(0u);
    switch WEIGHT {
        case Q5_0, Q5_1, Q5_K: { high.x = weight_word(base + high_start(), c); }
        case Q6_K: {
            let both = weights[base + high_start() + c / 2u];
            high = select(both.xy, both.zw, c % 2u == 1u);
        }
        default: {}
    }
    return SoaChunk(weights[base + c], high, load_soa_scale(base, c));
}

// What the scales of chunk c are made of, in words as they lie there: a shift would wait for its load.
fn load_soa_scale(base: u32, c: u32) -> vec4<u32> {
    var scale = vec4<u32>(0u);
    switch WEIGHT {
        case Q8_0: { scale.x = weight_word(base + scale_start(), c / 4u); }
        case Q4_0, Q5_0: { scale.x = weight_word(base + scale_start(), c / 2u); }
        case Q4_1, Q5_1: { scale.x = weight_word(base + scale_start(), c); }
        case Q4_K, Q5_K: { scale = weights[base + scale_start() + c / 8u]; }
        default: {
            scale.x = weight_word(base + scale_start(), c / 2u);
            scale.y = weight_word(base + second_start(), c / 16u);
        }
    }
    return scale;
}

// (s, m) of weight = s * q + m, q without its zero point; q6_k: s of the first and the last 16. Masks
// and shifts depend on c alone, which rows share.
fn soa_scales(scale: vec4<u32>, c: u32) -> vec2<f32> {
    switch WEIGHT {
        case Q8_0: { return vec2<f32>(unpack2x16float(scale.x >> (8u * (c & 2u))).x, 0.0); }
        case Q4_0, Q5_0: { return vec2<f32>(unpack2x16float(scale.x >> (16u * (c & 1u))).x, 0.0); }
        case Q4_1, Q5_1: { return unpack2x16float(scale.x); }
        case Q4_K, Q5_K: {
            // Sub-blocks 0..4 have their six bits in a byte each of y and z, the others four bits
            // in w and the rest on top of those bytes.
            let d = unpack2x16float(scale.x);
            let late = (c & 4u) != 0u;
            let shift = 8u * (c & 3u);
            let low = select(63u, 15u, late);
            let top = select(0u, 48u, late);
            let y = select(scale.y, scale.w, late) >> shift;
            let z = select(scale.z, scale.w, late) >> (shift + select(0u, 4u, late));
            let s = (y & low) | ((scale.y >> (shift + 2u)) & top);
            let m = (z & low) | ((scale.z >> (shift + 2u)) & top);
            return vec2<f32>(d.x, -d.y) * vec2<f32>(vec2<u32>(s, m));
        }
        default: {
            let word = scale.x >> (16u * (c & 1u));
            let pair = vec2<i32>(bitcast<vec2<i32>>(vec2<u32>(word) << vec2<u32>(24u, 16u)));
            return unpack2x16float(scale.y >> (2u * (c & 8u))).x * vec2<f32>(pair >> vec2<u32>(24u));
        }
    }
}

// What `quants_at` leaves on top of every q: the implicit one of the f16 it is made in, and the
// format's zero point. Formats with spare time per byte have it taken off there, exactly.
fn quant_offset() -> f32 {
    switch WEIGHT {
        case Q4_0: { return 16.0 + 8.0; }
        case Q5_0: { return 32.0 + 16.0; }
        case Q4_1, Q4_K: { return 16.0; }
        case Q5_1, Q5_K: { return 32.0; }
        default: { return 0.0; }
    }
}

struct Quants { low: vec4<f32>, high: vec4<f32> }

// q + quant_offset() of the weights in word j of a chunk: eight of them, q8_0: four, in `low`. Quants are
// shifted to the top of the mantissas of two f16 with exponent 2^bits, which then are 2^bits + q:
// two quants a shift and an and-or, and no integer is converted.
fn quants_at(chunk: SoaChunk, j: u32) -> Quants {
    var high = chunk.high.x >> (4u * j);
    if (WEIGHT == Q6_K) { high = chunk.high[j / 2u] >> (8u * (j % 2u)); }
    return word_quants(chunk.codes[j], high);
}

// The same of word w, whose quants' higher bits begin at the lowest of `high_bits`.
fn word_quants(w: u32, high_bits: u32) -> Quants {
    if (WEIGHT == Q8_0) {
        // Quants are signed: with the upper bit flipped they are q + 128.
        let u = w ^ 0x80808080u;
        let a = unpack2x16float(((u << 2u) & 0x03fc03fcu) | 0x5c005c00u);
        let b = unpack2x16float(((u >> 6u) & 0x03fc03fcu) | 0x5c005c00u);
        return Quants(vec4<f32>(a.x, b.x, a.y, b.y) - 384.0, vec4<f32>(0.0));
    }
    var p = vec4<u32>(w);
    switch WEIGHT {
        case Q5_0, Q5_1, Q5_K: {
            let h = vec4<u32>(high_bits);
            p = vec4<u32>(w << 5u, w << 1u, w >> 3u, w >> 7u) & vec4<u32>(0x01e001e0u);
            p |= (h << vec4<u32>(9u, 8u, 7u, 6u)) & vec4<u32>(0x02000200u);
            p |= vec4<u32>(0x50005000u);
        }
        case Q6_K: {
            let h = vec4<u32>(high_bits);
            p = vec4<u32>(w << 4u, w, w >> 4u, w >> 8u) & vec4<u32>(0x00f000f0u);
            p |= (h << vec4<u32>(8u, 6u, 4u, 2u)) & vec4<u32>(0x03000300u);
            p |= vec4<u32>(0x54005400u);
        }
        default: {
            // Of every second quant the upper bit is inverted.
            p = vec4<u32>(w << 6u, w << 2u, w >> 2u, w >> 6u) & vec4<u32>(0x03c003c0u);
            p ^= vec4<u32>(0x4c004c00u, 0x4e004e00u, 0x4c004c00u, 0x4e004e00u);
        }
    }
    let a = unpack2x16float(p.x);
    let b = unpack2x16float(p.y);
    let c = unpack2x16float(p.z);
    let d = unpack2x16float(p.w);
    let low = vec4<f32>(a.x, b.x, c.x, d.x);
    let high = vec4<f32>(a.y, b.y, c.y, d.y);
    if (WEIGHT == Q6_K) { return Quants(low - 96.0, high - 96.0); }
    return Quants(low, high);
}

// The activations a chunk meets, and their sum.
struct SoaX {
    a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>,
    e: vec4<f32>, f: vec4<f32>, g: vec4<f32>, h: vec4<f32>,
    sum: f32,
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

// A chunk's part of the product. The scale is applied once, and sum((q + offset) x) =
// sum(q x) + offset sum(x) takes one multiply-add a chunk instead of one a weight; minimums alike.
fn dot_soa_chunk(chunk: SoaChunk, c: u32, v: SoaX) -> f32 {
    let s = soa_scales(chunk.scale, c);
    let p = quants_at(chunk, 0u);
    let q = quants_at(chunk, 1u);
    let r = quants_at(chunk, 2u);
    let t = quants_at(chunk, 3u);
    if (WEIGHT == Q8_0) {
        return s.x * total(p.low * v.a + q.low * v.b + r.low * v.c + t.low * v.d);
    }
    let first = p.low * v.a + p.high * v.b + q.low * v.c + q.high * v.d;
    if (WEIGHT == Q6_K) {
        let last = r.low * v.e + r.high * v.f + t.low * v.g + t.high * v.h;
        return s.x * total(first) + s.y * total(last);
    }
    let all = first + r.low * v.e + r.high * v.f + t.low * v.g + t.high * v.h;
    let product = s.x * (total(all) - quant_offset() * v.sum);
    if (WEIGHT == Q4_0 || WEIGHT == Q5_0) { return product; }
    return product + s.y * v.sum;
}
