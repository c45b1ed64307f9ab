// Eight weights at a time out of packed rows, in any format and packing, in two steps: the loads,
// then their decoding, so that other work can stand between them. What the fields of a block mean:
// lathe_reference::quant.
// import: format/eight
// requires: var weights: array<vec4<u32>>
override K: u32; // elements of a row
override WEIGHT: u32; // any format
override PACKING: u32 = PACKING_BLOCKS; // blocks as in the file, or the fields of a row's blocks apart

// Loaded words of eight values.
struct Raw { a: vec4<u32>, b: vec4<u32> }

fn packed_block_elements() -> u32 {
    return select(32u, 256u, WEIGHT >= Q4_K);
}

// Bytes of a block's quants, high bits, scales and, where it lies apart, the scale of the scales.
fn field_bytes() -> vec4<u32> {
    switch WEIGHT {
        case Q8_0: { return vec4<u32>(32u, 0u, 2u, 0u); }
        case Q4_0: { return vec4<u32>(16u, 0u, 2u, 0u); }
        case Q4_1: { return vec4<u32>(16u, 0u, 4u, 0u); }
        case Q5_0: { return vec4<u32>(16u, 4u, 2u, 0u); }
        case Q5_1: { return vec4<u32>(16u, 4u, 4u, 0u); }
        case Q4_K: { return vec4<u32>(128u, 0u, 16u, 0u); }
        case Q5_K: { return vec4<u32>(128u, 32u, 16u, 0u); }
        default: { return vec4<u32>(128u, 64u, 16u, 2u); }
    }
}

// Where those fields lie in a block: all but q6_k have their scales first, then the high bits.
fn field_offsets() -> vec4<u32> {
    if (WEIGHT == Q6_K) { return vec4<u32>(0u, 128u, 192u, 208u); }
    let bytes = field_bytes();
    return vec4<u32>(bytes.y + bytes.z, bytes.z, 0u, 0u);
}

fn row_bytes() -> u32 {
    if (WEIGHT < Q8_0) { return (K * select(2u, 4u, WEIGHT == F32) + 15u) & ~15u; }
    let blocks = (K + packed_block_elements() - 1u) / packed_block_elements();
    let fields = blocks * field_bytes();
    if (PACKING == PACKING_BLOCKS) { return (fields.x + fields.y + fields.z + fields.w + 15u) & ~15u; }
    let planes = (fields + 15u) & vec4<u32>(~15u);
    return planes.x + planes.y + planes.z + planes.w;
}

// Byte at which each field of a block begins.
fn fields_at(row: u32, block: u32) -> vec4<u32> {
    let base = row * row_bytes();
    let bytes = field_bytes();
    if (PACKING == PACKING_BLOCKS) {
        return base + block * (bytes.x + bytes.y + bytes.z + bytes.w) + field_offsets();
    }
    let blocks = (K + packed_block_elements() - 1u) / packed_block_elements();
    let planes = (blocks * bytes + 15u) & vec4<u32>(~15u);
    let starts = vec4<u32>(0u, planes.x, planes.x + planes.y, planes.x + planes.y + planes.z);
    return base + starts + block * bytes;
}

// The aligned word around a byte.
fn word_around(at: u32) -> u32 {
    return weights[at / 16u][(at / 4u) % 4u];
}

// Four bytes from an even byte on: blocks of 18, 22, 34 and 210 bytes leave words unaligned.
fn weight_word_at(at: u32) -> u32 {
    if (at % 4u == 0u) { return word_around(at); }
    return (word_around(at) >> 16u) | (word_around(at + 2u) << 16u);
}

// Two bytes from an even byte on.
fn half_word(at: u32) -> u32 {
    return (word_around(at) >> (8u * (at & 2u))) & 0xffffu;
}

// Loads what elements i..i+8 of a row are decoded from; i < K is a multiple of 8.
fn load_weights(row: u32, i: u32) -> Raw {
    let none = vec4<u32>(0u);
    if (WEIGHT == F32) {
        let at = row * (row_bytes() / 16u) + i / 4u;
        if (i + 4u >= K) { return Raw(weights[at], none); }
        return Raw(weights[at], weights[at + 1u]);
    }
    if (WEIGHT < Q8_0) { return Raw(weights[row * (row_bytes() / 16u) + i / 8u], none); }
    let f = fields_at(row, i / packed_block_elements());
    let e = i % packed_block_elements();
    if (WEIGHT == Q8_0) {
        return Raw(vec4<u32>(weight_word_at(f.x + e), weight_word_at(f.x + e + 4u), half_word(f.z), 0u), none);
    }
    if (WEIGHT < Q4_K) {
        let code = f.x + e % 16u;
        var a = vec4<u32>(0u);
        if (PACKING == PACKING_SOA) {
            a.x = word_around(f.x + e / 2u);
        } else {
            a.x = weight_word_at(code);
            a.y = weight_word_at(code + 4u);
        }
        // A scale alone, or a scale and a minimum.
        if (WEIGHT == Q4_0 || WEIGHT == Q5_0) { a.z = half_word(f.z); } else { a.z = word_around(f.z); }
        if (WEIGHT >= Q5_0) { a.w = weight_word_at(f.y); }
        return Raw(a, none);
    }
    if (WEIGHT < Q6_K) {
        if (PACKING == PACKING_SOA) {
            var a = vec4<u32>(word_around(f.x + e / 2u), 0u, 0u, 0u);
            if (WEIGHT == Q5_K) { a.w = word_around(f.y + e / 32u * 4u); }
            return Raw(a, weights[f.z / 16u]);
        }
        let code = f.x + e / 64u * 32u + e % 32u;
        var a = vec4<u32>(word_around(code), word_around(code + 4u), 0u, 0u);
        if (WEIGHT == Q5_K) {
            a.z = word_around(f.y + e % 32u);
            a.w = word_around(f.y + e % 32u + 4u);
        }
        return Raw(a, weights[f.z / 16u]);
    }
    let scale = f.z + e / 16u;
    var a: vec4<u32>;
    if (PACKING == PACKING_SOA) {
        a = vec4<u32>(word_around(f.x + e / 2u), 0u, 0u, word_around(f.y + e / 16u * 4u));
    } else {
        let code = f.x + e / 128u * 64u + e % 64u;
        let high = f.y + e / 128u * 32u + e % 32u;
        a = vec4<u32>(weight_word_at(code), weight_word_at(code + 4u), weight_word_at(high), weight_word_at(high + 4u));
    }
    return Raw(a, vec4<u32>(word_around(scale) >> (8u * (scale % 4u)), half_word(f.w), 0u, 0u));
}

fn bf16_pair(word: u32) -> vec2<f32> {
    return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}

// Four bytes as numbers.
fn bytes_of(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xU8(word));
}

// Bits 0..4 of a word as the lowest bit of each byte.
fn spread(word: u32) -> u32 {
    return ((word & 15u) * 0x00204081u) & 0x01010101u;
}

// Four nibbles, and four pairs of bits, as four bytes.
fn nibbles(word: u32) -> u32 {
    let two = (word | (word << 8u)) & 0x00ff00ffu;
    return (two | (two << 4u)) & 0x0f0f0f0fu;
}

fn bit_pairs(word: u32) -> u32 {
    let two = (word | (word << 12u)) & 0x000f000fu;
    return (two | (two << 6u)) & 0x03030303u;
}

// The quants of elements e..e+8 of a block, a byte each. Blocks pair quants half a run apart; planes
// keep the order of the weights, of every eight the last four sixteen bits above the first four.
fn quants_of(a: vec4<u32>, e: u32) -> vec2<u32> {
    if (PACKING == PACKING_SOA) {
        var q = vec2<u32>(nibbles(a.x & 0xffffu), nibbles(a.x >> 16u));
        if (WEIGHT == Q6_K) {
            let w = a.w >> (8u * (e / 8u % 2u));
            q |= vec2<u32>(bit_pairs(w & 255u), bit_pairs((w >> 16u) & 255u)) << vec2<u32>(4u);
        } else if (WEIGHT == Q5_0 || WEIGHT == Q5_1 || WEIGHT == Q5_K) {
            let w = a.w >> (4u * (e / 8u % 4u));
            q |= vec2<u32>(spread(w), spread(w >> 16u)) << vec2<u32>(4u);
        } else {
            // Of every second quant of four bits the upper one is inverted.
            q ^= vec2<u32>(0x08000800u);
        }
        return q;
    }
    let nibble = vec2<u32>(0x0f0f0f0fu);
    if (WEIGHT < Q4_K) {
        var q = (a.xy >> vec2<u32>(e / 16u * 4u)) & nibble;
        if (WEIGHT >= Q5_0) {
            q |= vec2<u32>(spread(a.w >> e), spread(a.w >> (e + 4u))) << vec2<u32>(4u);
        }
        return q;
    }
    let j = e / 32u;
    if (WEIGHT < Q6_K) {
        var q = (a.xy >> vec2<u32>(j % 2u * 4u)) & nibble;
        if (WEIGHT == Q5_K) { q |= ((a.zw >> vec2<u32>(j)) & vec2<u32>(0x01010101u)) << vec2<u32>(4u); }
        return q;
    }
    let high = (a.zw >> vec2<u32>(2u * (j % 4u))) & vec2<u32>(0x03030303u);
    return ((a.xy >> vec2<u32>(j % 4u / 2u * 4u)) & nibble) | (high << vec2<u32>(4u));
}

// The values at i..i+8 out of what load_weights found there; all-zero words give zeros.
fn decode_weights(raw: Raw, i: u32) -> Eight {
    let a = raw.a;
    if (WEIGHT == F32) { return Eight(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(raw.b)); }
    if (WEIGHT == F16) {
        return Eight(
            vec4<f32>(unpack2x16float(a.x), unpack2x16float(a.y)),
            vec4<f32>(unpack2x16float(a.z), unpack2x16float(a.w)),
        );
    }
    if (WEIGHT == BF16) {
        return Eight(
            vec4<f32>(bf16_pair(a.x), bf16_pair(a.y)),
            vec4<f32>(bf16_pair(a.z), bf16_pair(a.w)),
        );
    }
    let e = i % packed_block_elements();
    if (WEIGHT == Q8_0) {
        let scale = unpack2x16float(a.z).x;
        return Eight(
            scale * vec4<f32>(unpack4xI8(a.x)),
            scale * vec4<f32>(unpack4xI8(a.y)),
        );
    }
    // A value is scale * code + least.
    let q = quants_of(a, e);
    var scale: f32;
    var least: f32;
    if (WEIGHT < Q4_K) {
        let both = unpack2x16float(a.z);
        scale = both.x;
        least = both.y;
        // Exact: a scale has 11 bits.
        if (WEIGHT == Q4_0) { least = -8.0 * scale; }
        if (WEIGHT == Q5_0) { least = -16.0 * scale; }
    } else if (WEIGHT < Q6_K) {
        let j = e / 32u;
        // Twelve bytes hold eight 6-bit scales and minimums: four whole ones each, whose spare
        // bits are the upper ones of the other four.
        let s = (raw.b.yzw >> vec3<u32>(j % 4u * 8u)) & vec3<u32>(0xffu);
        var pair = s.xy & vec2<u32>(63u);
        if (j >= 4u) {
            pair = vec2<u32>(s.z & 15u, s.z >> 4u) | ((s.xy >> vec2<u32>(6u)) << vec2<u32>(4u));
        }
        let scales = unpack2x16float(raw.b.x) * vec2<f32>(pair);
        scale = scales.x;
        least = -scales.y;
    } else {
        scale = unpack2x16float(raw.b.y).x * f32(bitcast<i32>(raw.b.x << 24u) >> 24u);
        return Eight(scale * (bytes_of(q.x) - 32.0), scale * (bytes_of(q.y) - 32.0));
    }
    return Eight(scale * bytes_of(q.x) + least, scale * bytes_of(q.y) + least);
}
