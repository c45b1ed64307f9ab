// Four quantised weights at a time, in any packing, out of word `i` and sixteen bytes `i` of the packed
// rows. `base` is the byte at which a row begins, `e` an element of `block`, a multiple of 4. Where the
// fields lie comes from layout::Format::fields: numbers, not code.
// requires: fn packed_chunk(i: u32) -> vec4<u32>
// requires: fn packed_word(i: u32) -> u32
override WEIGHT: u32; // a quantised format
override PACKING: u32; // blocks as in the file, or planes: quants in the order of the weights
override BLOCK: u32; // elements of a block
override ROW_BYTES: u32; // from one packed row to the next
// Byte of the first block's field in a row, and bytes to the next block's.
override CODES: u32;
override CODES_STEP: u32;
override HIGH: u32; // high bits of the quants, where the format has them
override HIGH_STEP: u32;
override SCALES: u32; // 8-bit scales of q6_k
override SCALES_STEP: u32;
override LAST: u32; // the f16 scales, with the 6-bit ones where the format has them
override LAST_STEP: u32;

// The word at an even byte: blocks of 34, 18, 22 or 210 bytes begin between words.
fn packed_word_at(at: u32) -> u32 {
    let low = packed_word(at / 4u);
    if ((CODES | CODES_STEP | HIGH | HIGH_STEP) % 4u == 0u || at % 4u == 0u) { return low; }
    return (low >> 16u) | (packed_word(at / 4u + 1u) << 16u);
}

// The f16 at an even byte.
fn half_of(at: u32) -> f32 {
    return unpack2x16float(packed_word(at / 4u) >> (8u * (at % 4u))).x;
}

// Elements that share a scale.
fn sub_elements() -> u32 { return select(32u, 16u, WEIGHT == Q6_K); }

// Scale and addend of the sub-block of element e: a weight is code * x + y.
fn scale_addend(base: u32, block: u32, e: u32) -> vec2<f32> {
    let last = base + LAST + block * LAST_STEP;
    switch WEIGHT {
        case Q8_0, Q4_0, Q5_0: { return vec2<f32>(half_of(last), 0.0); }
        case Q4_1, Q5_1: { return unpack2x16float(packed_word(last / 4u)); }
        case Q4_K, Q5_K: {
            let head = packed_chunk(last / 16u);
            let packed = head.yzw >> vec3<u32>(8u * (e / 32u % 4u));
            var sm = packed.xy & vec2<u32>(63u);
            if (e >= 128u) {
                let low = vec2<u32>(packed.z, packed.z >> 4u) & vec2<u32>(15u);
                sm = low | ((packed.xy >> vec2<u32>(2u)) & vec2<u32>(48u));
            }
            return unpack2x16float(head.x) * vec2<f32>(sm) * vec2<f32>(1.0, -1.0);
        }
        default: {
            let at = base + SCALES + block * SCALES_STEP + e / 16u;
            let scale = f32(extractBits(bitcast<i32>(packed_word(at / 4u)), 8u * (at % 4u), 8u));
            return vec2<f32>(half_of(last) * scale, 0.0);
        }
    }
}

// The bytes of a word, the lowest first.
fn byte_values(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
}

fn signed_bytes_of(word: u32) -> vec4<f32> {
    let high = bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u));
    return vec4<f32>(high >> vec4<u32>(24u));
}

// Bits 0..4 as the fifth bits of four bytes.
fn fifth_bits(four: u32) -> u32 { return (((four & 15u) * 0x204081u) & 0x1010101u) << 4u; }

// Four nibbles, and four pairs of bits, as four bytes.
fn nibble_bytes(word: u32) -> u32 {
    let two = (word | (word << 8u)) & 0xff00ffu;
    return (two | (two << 4u)) & 0xf0f0f0fu;
}

fn bit_pair_bytes(word: u32) -> u32 {
    let two = (word | (word << 12u)) & 0xf000fu;
    return (two | (two << 6u)) & 0x3030303u;
}

// The word of a plane that holds element e, shifted so that the bits of e..e+4 are its lowest: of
// every eight weights the last four lie sixteen bits above the first four.
fn plane_four(plane: u32, bits: u32, e: u32) -> u32 {
    let i = e % (32u / bits);
    return packed_word_at(plane + e * bits / 32u * 4u) >> (16u * (i / 4u % 2u) + 4u * bits * (i / 8u));
}

fn upper_bits_four(high: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) { return bit_pair_bytes(plane_four(high, 2u, e) & 255u) << 4u; }
    let top = packed_word_at(high + e / 128u * 32u + e % 32u) >> (2u * (e / 32u % 4u));
    return (top & 0x3030303u) << 4u;
}

fn fifth_bits_of(high: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) { return fifth_bits(plane_four(high, 1u, e)); }
    if (WEIGHT == Q5_K) { return ((packed_word_at(high + e % 32u) >> (e / 32u)) & 0x1010101u) << 4u; }
    return fifth_bits(packed_word_at(high) >> e);
}

// The low four bits; in a block, 2 * run quants share `run` bytes.
fn low_bits(codes: u32, run: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) {
        let four = nibble_bytes(plane_four(codes, 4u, e) & 0xffffu);
        // Formats of four bits have the upper bit of every second quant inverted.
        switch WEIGHT {
            case Q4_0, Q4_1, Q4_K: { return four ^ 0x08000800u; }
            default: { return four; }
        }
    }
    return (packed_word_at(codes + e / (2u * run) * run + e % run) >> (4u * (e / run % 2u))) & 0xf0f0f0fu;
}

// The quants of elements e..e+4, around zero where a format has no addend.
fn codes_four(base: u32, block: u32, e: u32) -> vec4<f32> {
    let codes = base + CODES + block * CODES_STEP;
    let high = base + HIGH + block * HIGH_STEP;
    switch WEIGHT {
        case Q8_0: { return signed_bytes_of(packed_word_at(codes + e)); }
        case Q4_0, Q4_1, Q5_0, Q5_1: {
            var q = low_bits(codes, 16u, e);
            if (WEIGHT >= Q5_0) { q |= fifth_bits_of(high, e); }
            let around = select(select(0.0, 8.0, WEIGHT == Q4_0), 16.0, WEIGHT == Q5_0);
            return byte_values(q) - around;
        }
        case Q4_K, Q5_K: {
            var q = low_bits(codes, 32u, e);
            if (WEIGHT == Q5_K) { q |= fifth_bits_of(high, e); }
            return byte_values(q);
        }
        default: { return byte_values(low_bits(codes, 64u, e) | upper_bits_four(high, e)) - 32.0; }
    }
}

// The product is exact, so a contraction to fma gives the same bits; without an addend nothing is
// added, which would lose the sign of a zero.
fn dequant_four(codes: vec4<f32>, by: vec2<f32>) -> vec4<f32> {
    if (WEIGHT == Q4_1 || (WEIGHT >= Q5_1 && WEIGHT <= Q5_K)) { return codes * by.x + by.y; }
    return codes * by.x;
}
