// One weight at a time out of packed rows, in any format and packing: what is simple enough to
// trust. `packed_word(i)` is word i of the matrix; `k` is the length of a row. What the fields of a
// block mean: lathe_reference::quant.
// import: format/quantised
// requires: fn packed_word(i: u32) -> u32
override WEIGHT: u32; // any format
override PACKING: u32 = PACKING_BLOCKS; // blocks as in the file, or planes: quants in order, scales apart

// Byte offset of a field in a block, its bytes, and the bytes of all fields that the planes hold
// before it, for one block.
struct Field { offset: u32, bytes: u32 }

fn block_elements() -> u32 {
    if (WEIGHT < Q8_0) { return 1u; }
    return select(32u, 256u, WEIGHT >= Q4_K);
}

fn block_bytes() -> u32 {
    if (WEIGHT < Q8_0) { return select(2u, 4u, WEIGHT == F32); }
    return quantised_block_bytes();
}

// The fields in the order of layout::Format::planes.
fn field(plane: u32) -> Field {
    switch WEIGHT {
        case F32, F16, BF16: { return Field(0u, block_bytes()); }
        case Q8_0: { if (plane == 0u) { return Field(2u, 32u); } return Field(0u, 2u); }
        case Q4_0: { if (plane == 0u) { return Field(2u, 16u); } return Field(0u, 2u); }
        case Q4_1: { if (plane == 0u) { return Field(4u, 16u); } return Field(0u, 4u); }
        case Q5_0: {
            if (plane == 0u) { return Field(6u, 16u); }
            if (plane == 1u) { return Field(2u, 4u); }
            return Field(0u, 2u);
        }
        case Q5_1: {
            if (plane == 0u) { return Field(8u, 16u); }
            if (plane == 1u) { return Field(4u, 4u); }
            return Field(0u, 4u);
        }
        case Q4_K: { if (plane == 0u) { return Field(16u, 128u); } return Field(0u, 16u); }
        case Q5_K: {
            if (plane == 0u) { return Field(48u, 128u); }
            if (plane == 1u) { return Field(16u, 32u); }
            return Field(0u, 16u);
        }
        default: {
            if (plane == 0u) { return Field(0u, 128u); }
            if (plane == 1u) { return Field(128u, 64u); }
            if (plane == 2u) { return Field(192u, 16u); }
            return Field(208u, 2u);
        }
    }
}

fn planes() -> u32 {
    switch WEIGHT {
        case F32, F16, BF16: { return 1u; }
        case Q5_0, Q5_1, Q5_K: { return 3u; }
        case Q6_K: { return 4u; }
        default: { return 2u; }
    }
}

// Where a plane begins in a packed row of `blocks` blocks, bytes; plane planes() is the row's end.
fn plane_start(plane: u32, blocks: u32) -> u32 {
    var start = 0u;
    for (var p = 0u; p < plane; p++) { start += (blocks * field(p).bytes + 15u) & ~15u; }
    return start;
}

// Bytes from a packed row of k elements to the next.
fn row_stride(k: u32) -> u32 {
    let blocks = (k + block_elements() - 1u) / block_elements();
    if (PACKING == PACKING_SOA) { return plane_start(planes(), blocks); }
    return (blocks * block_bytes() + 15u) & ~15u;
}

// Byte of a packed row at which a field of a block begins.
fn field_at(plane: u32, block: u32, blocks: u32) -> u32 {
    let f = field(plane);
    if (PACKING == PACKING_SOA) { return plane_start(plane, blocks) + block * f.bytes; }
    return block * block_bytes() + f.offset;
}

fn byte_at(at: u32) -> u32 {
    return (packed_word(at / 4u) >> (8u * (at % 4u))) & 0xffu;
}

fn signed_byte_at(at: u32) -> f32 {
    return f32(bitcast<i32>(byte_at(at) << 24u) >> 24u);
}

fn half_at(at: u32) -> f32 {
    return unpack2x16float(byte_at(at) | (byte_at(at + 1u) << 8u)).x;
}

// The field of weight e of a block in a plane of `bits` bits a weight that begins at byte `at`:
// of every eight weights the last four lie sixteen bits above the first four.
fn plane_bits(at: u32, bits: u32, e: u32) -> u32 {
    let i = e % (32u / bits);
    let bit = 16u * (i / 4u % 2u) + bits * (4u * (i / 8u) + i % 4u);
    return (packed_word(at / 4u + e * bits / 32u) >> bit) & ((1u << bits) - 1u);
}

// The low four bits of quant e. In a block, 2 * run quants share `run` bytes: the first half has the
// low nibbles.
fn nibble_at(at: u32, run: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) {
        let nibble = plane_bits(at, 4u, e);
        // Formats of four bits have the upper bit of every second quant inverted.
        let pairs = WEIGHT == Q4_0 || WEIGHT == Q4_1 || WEIGHT == Q4_K;
        return select(nibble, nibble ^ 8u, pairs && e % 2u == 1u);
    }
    let byte = byte_at(at + e / (2u * run) * run + e % run);
    return (byte >> (4u * (e / run % 2u))) & 15u;
}

fn fifth_bit(at: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) { return plane_bits(at, 1u, e) << 4u; }
    if (WEIGHT == Q5_K) { return ((byte_at(at + e % 32u) >> (e / 32u)) & 1u) << 4u; }
    return ((byte_at(at + e / 8u) >> (e % 8u)) & 1u) << 4u;
}

// Bits 4 and 5 of quant e of a q6_k block.
fn upper_bits(at: u32, e: u32) -> u32 {
    if (PACKING == PACKING_SOA) { return plane_bits(at, 2u, e) << 4u; }
    return ((byte_at(at + e / 128u * 32u + e % 32u) >> (2u * (e / 32u % 4u))) & 3u) << 4u;
}

// Scale and minimum of sub-block j out of twelve bytes of 6-bit values.
fn scale_min(at: u32, j: u32) -> vec2<f32> {
    if (j < 4u) {
        return vec2<f32>(vec2<u32>(byte_at(at + j) & 63u, byte_at(at + j + 4u) & 63u));
    }
    let low = byte_at(at + j + 4u);
    return vec2<f32>(vec2<u32>(
        (low & 15u) | ((byte_at(at + j - 4u) >> 6u) << 4u),
        (low >> 4u) | ((byte_at(at + j) >> 6u) << 4u),
    ));
}

// Element i of row `row` of rows of k elements.
fn weight_at(row: u32, i: u32, k: u32) -> f32 {
    let blocks = (k + block_elements() - 1u) / block_elements();
    let base = row * row_stride(k);
    let block = i / block_elements();
    let e = i % block_elements();
    let codes = base + field_at(0u, block, blocks);
    let last = base + field_at(planes() - 1u, block, blocks);
    let middle = base + field_at(1u, block, blocks);
    switch WEIGHT {
        case F32: { return bitcast<f32>(packed_word(codes / 4u)); }
        case F16: { return half_at(codes); }
        case BF16: { return bitcast<f32>((byte_at(codes) << 16u) | (byte_at(codes + 1u) << 24u)); }
        case Q8_0: { return half_at(last) * signed_byte_at(codes + e); }
        case Q4_0: { return half_at(last) * (f32(nibble_at(codes, 16u, e)) - 8.0); }
        case Q4_1: { return half_at(last) * f32(nibble_at(codes, 16u, e)) + half_at(last + 2u); }
        case Q5_0: {
            return half_at(last) * (f32(nibble_at(codes, 16u, e) | fifth_bit(middle, e)) - 16.0);
        }
        case Q5_1: {
            let q = nibble_at(codes, 16u, e) | fifth_bit(middle, e);
            return half_at(last) * f32(q) + half_at(last + 2u);
        }
        case Q4_K, Q5_K: {
            var q = nibble_at(codes, 32u, e);
            if (WEIGHT == Q5_K) { q |= fifth_bit(middle, e); }
            let sm = scale_min(last + 4u, e / 32u);
            return half_at(last) * sm.x * f32(q) - half_at(last + 2u) * sm.y;
        }
        default: {
            let q = f32(nibble_at(codes, 64u, e) | upper_bits(middle, e)) - 32.0;
            let scale = signed_byte_at(base + field_at(2u, block, blocks) + e / 16u);
            return half_at(last) * scale * q;
        }
    }
}
