// Quantised rows in blocks as the file has them. Blocks of 18, 22, 34 and 210 bytes lie across words,
// so two words are shifted into one.
// import: format/quantised
// requires: var weights: array<u32>
override WEIGHT: u32; // a quantised format
override K: u32;

fn file_row_bytes() -> u32 {
    let len = select(32u, 256u, WEIGHT >= Q4_K);
    return ((K + len - 1u) / len * quantised_block_bytes() + 15u) & ~15u;
}

// Four bytes from an even address on, which may lie across two words. An aligned one reads its own
// word twice: the next may be beyond the buffer.
fn file_word(at: u32) -> u32 {
    let low = weights[at / 4u];
    if (quantised_block_bytes() % 4u == 0u) { return low; }
    let high = weights[(at + 2u) / 4u];
    return select(low, (low >> 16u) | (high << 16u), (at & 2u) != 0u);
}

fn file_half(at: u32) -> f32 { return unpack2x16float(weights[at / 4u] >> (8u * (at & 2u))).x; }

fn file_byte(at: u32) -> u32 { return (weights[at / 4u] >> (8u * (at & 3u))) & 255u; }

// Where the block of 32 weights c of the row at byte `base` begins, and which 32 of it they are.
fn block_of(base: u32, c: u32) -> vec2<u32> {
    if (WEIGHT >= Q4_K) { return vec2<u32>(base + c / 8u * quantised_block_bytes(), c % 8u); }
    return vec2<u32>(base + c * quantised_block_bytes(), 0u);
}

// Quants 4i..4i+4 of them, a byte each.
fn codes(at: vec2<u32>, i: u32) -> u32 {
    let b = at.x;
    let j = at.y;
    switch WEIGHT {
        case Q8_0: { return file_word(b + 2u + 4u * i); }
        case Q4_0, Q4_1, Q5_0, Q5_1: {
            let w = file_word(b + quantised_block_bytes() - 16u + 4u * (i % 4u));
            let low = (w >> (4u * (i / 4u))) & 0x0f0f0f0fu;
            if (WEIGHT < Q5_0) { return low; }
            // Four bits, multiplied to the bottom of a byte each.
            let h = (file_word(b + quantised_block_bytes() - 20u) >> (4u * i)) & 15u;
            return low | (((h * 0x00204081u) & 0x01010101u) << 4u);
        }
        case Q4_K, Q5_K: {
            let w = file_word(b + quantised_block_bytes() - 128u + j / 2u * 32u + 4u * i);
            let low = (w >> (4u * (j % 2u))) & 0x0f0f0f0fu;
            if (WEIGHT == Q4_K) { return low; }
            return low | (((file_word(b + 16u + 4u * i) >> j) & 0x01010101u) << 4u);
        }
        default: {
            let w = file_word(b + j / 4u * 64u + j % 2u * 32u + 4u * i);
            let h = file_word(b + 128u + j / 4u * 32u + 4u * i);
            return ((w >> (4u * (j % 4u / 2u))) & 0x0f0f0f0fu)
                | (((h >> (2u * (j % 4u))) & 0x03030303u) << 4u);
        }
    }
}

fn values(code: u32) -> vec4<f32> {
    switch WEIGHT {
        case Q8_0: { return vec4<f32>(unpack4xI8(code)); }
        case Q4_0: { return vec4<f32>(unpack4xU8(code)) - 8.0; }
        case Q5_0: { return vec4<f32>(unpack4xU8(code)) - 16.0; }
        case Q6_K: { return vec4<f32>(unpack4xU8(code)) - 32.0; }
        default: { return vec4<f32>(unpack4xU8(code)); }
    }
}

// (s, m) of weight = s * q + m; q6_k: s of the first and the last 16.
fn file_scales(at: vec2<u32>) -> vec2<f32> {
    let b = at.x;
    let j = at.y;
    switch WEIGHT {
        case Q8_0, Q4_0, Q5_0: { return vec2<f32>(file_half(b), 0.0); }
        case Q4_1, Q5_1: { return unpack2x16float(file_word(b)); }
        case Q4_K, Q5_K: {
            let d = unpack2x16float(file_word(b));
            let s = file_byte(b + 4u + j % 4u);
            let m = file_byte(b + 8u + j % 4u);
            let w = file_byte(b + 12u + j % 4u);
            let late = j >= 4u;
            let sc = select(s & 63u, (w & 15u) | ((s >> 6u) << 4u), late);
            let mn = select(m & 63u, (w >> 4u) | ((m >> 6u) << 4u), late);
            return vec2<f32>(d.x, -d.y) * vec2<f32>(vec2<u32>(sc, mn));
        }
        default: {
            let two = vec2<u32>(file_byte(b + 192u + 2u * j), file_byte(b + 193u + 2u * j));
            let s = bitcast<vec2<i32>>(two << vec2<u32>(24u)) >> vec2<u32>(24u);
            return file_half(b + 208u) * vec2<f32>(s);
        }
    }
}
