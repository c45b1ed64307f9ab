//! Storage formats of GGUF weights and their exact decoding to `f32`.
//!
//! A row is a run of blocks: `block_len` weights packed into `block_bytes` bytes, little endian.
//! With `d`, `m`, `dmin` stored as f16, `sc`, `mn` small integers and `q` the unpacked code:
//!
//! | format | len | bytes | fields in order | weight |
//! |---|---|---|---|---|
//! | F32, F16, Bf16 | 1 | 4, 2, 2 | value | value |
//! | Q8_0 | 32 | 34 | d, q: i8×32 | d·q |
//! | Q4_0 | 32 | 18 | d, nibbles×16 | d·(q−8) |
//! | Q4_1 | 32 | 20 | d, m, nibbles×16 | d·q + m |
//! | Q5_0 | 32 | 22 | d, high bits u32, nibbles×16 | d·(q−16) |
//! | Q5_1 | 32 | 24 | d, m, high bits u32, nibbles×16 | d·q + m |
//! | Q4K | 256 | 144 | d, dmin, scales×12, nibbles×128 | (d·sc)·q − dmin·mn |
//! | Q5K | 256 | 176 | d, dmin, scales×12, high bits×32, nibbles×128 | (d·sc)·q − dmin·mn |
//! | Q6K | 256 | 210 | nibbles×128, high pairs×64, sc: i8×16, d | (d·sc)·(q−32) |
//!
//! Every product above is exact in `f32` (11 bits of f16 and at most 12 of integers), so a weight
//! carries at most one rounding, that of the final sum, and any order of evaluation, fused or not,
//! gives the same bits.
//!
//! Source: `dequantize_row_*` of ggml's `ggml-quants.c`; the goldens in `tests/` hold the values
//! of the official `gguf` Python package.

use std::array::from_fn;

use half::{bf16, f16};

/// Storage format of a tensor's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// 8-bit codes, one scale per 32.
    Q8_0,
    /// 4-bit codes around 8, one scale per 32.
    Q4_0,
    /// 4-bit codes, one scale and minimum per 32.
    Q4_1,
    /// 5-bit codes around 16, one scale per 32.
    Q5_0,
    /// 5-bit codes, one scale and minimum per 32.
    Q5_1,
    /// 4-bit codes, superblocks of 8 × 32 with 6-bit scales and minimums.
    Q4K,
    /// 5-bit codes, superblocks of 8 × 32 with 6-bit scales and minimums.
    Q5K,
    /// 6-bit codes around 32, superblocks of 16 × 16 with 8-bit scales.
    Q6K,
}

impl Format {
    /// Every format, in declaration order.
    pub const ALL: &[Format] = &[
        Format::F32,
        Format::F16,
        Format::Bf16,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
    ];

    /// The lower-case name used in files, reports and commands.
    pub fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::Q8_0 => "q8_0",
            Format::Q4_0 => "q4_0",
            Format::Q4_1 => "q4_1",
            Format::Q5_0 => "q5_0",
            Format::Q5_1 => "q5_1",
            Format::Q4K => "q4_k",
            Format::Q5K => "q5_k",
            Format::Q6K => "q6_k",
        }
    }

    /// Weights per block.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q8_0 | Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub fn block_bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Q8_0 => 34,
            Format::Q4_0 => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
        }
    }

    /// Bytes of a row of `k` weights. Its last block may hold more weights than the row: GGUF files
    /// never have such rows, a workbench that packs 1152 columns in blocks of 256 does.
    pub fn row_bytes(self, k: usize) -> usize {
        k.div_ceil(self.block_len()) * self.block_bytes()
    }

    /// Decodes a row into `out`, bit for bit as ggml does, and drops the part of its last block
    /// beyond the row.
    ///
    /// # Panics
    /// When `bytes` is not exactly `row_bytes(out.len())` long.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len(), self.row_bytes(out.len()), "{}: bytes of the row", self.name());
        let ragged = out.len() % self.block_len();
        if ragged > 0 {
            let (bytes, last) = bytes.split_at(bytes.len() - self.block_bytes());
            let (out, rest) = out.split_at_mut(out.len() - ragged);
            let mut block = [0.0; 256];
            let block = &mut block[..self.block_len()];
            self.decode(bytes, out);
            self.decode(last, block);
            rest.copy_from_slice(&block[..ragged]);
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            // SAFETY: this machine has both.
            return unsafe { self.decode_avx2(bytes, out) };
        }
        self.decode_blocks(bytes, out);
    }

    /// Same as [`Format::decode_blocks`], compiled for wider registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,f16c")]
    fn decode_avx2(self, bytes: &[u8], out: &mut [f32]) {
        self.decode_blocks(bytes, out);
    }

    #[inline(always)]
    fn decode_blocks(self, bytes: &[u8], out: &mut [f32]) {
        macro_rules! blocks {
            ($decode:expr) => {
                for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
                    $decode(block, out);
                }
            };
        }
        match self {
            Format::F32 => blocks!(|b: &[u8; 4], [o]: &mut [f32; 1]| *o = f32::from_le_bytes(*b)),
            Format::F16 => blocks!(|b: &[u8; 2], [o]: &mut [f32; 1]| *o = f16_at(b, 0)),
            Format::Bf16 => {
                blocks!(|b: &[u8; 2], [o]: &mut [f32; 1]| *o = bf16::from_le_bytes(*b).to_f32());
            }
            Format::Q8_0 => blocks!(q8_0),
            Format::Q4_0 => blocks!(q4_0),
            Format::Q4_1 => blocks!(q4_1),
            Format::Q5_0 => blocks!(q5_0),
            Format::Q5_1 => blocks!(q5_1),
            Format::Q4K => blocks!(q4_k),
            Format::Q5K => blocks!(q5_k),
            Format::Q6K => blocks!(q6_k),
        }
    }
}

#[inline(always)]
fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[inline(always)]
fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

#[inline(always)]
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (o, &q) in out.iter_mut().zip(&block[2..]) {
        *o = d * f32::from(q.cast_signed());
    }
}

/// The 32 codes of a 32-block: the low nibbles are the first half, the high ones the second.
#[inline(always)]
fn nibbles(packed: &[u8]) -> [u8; 32] {
    from_fn(|i| if i < 16 { packed[i] & 15 } else { packed[i - 16] >> 4 })
}

#[inline(always)]
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (o, code) in out.iter_mut().zip(nibbles(&block[2..])) {
        *o = d * (f32::from(code) - 8.0);
    }
}

#[inline(always)]
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (o, code) in out.iter_mut().zip(nibbles(&block[4..])) {
        *o = d * f32::from(code) + m;
    }
}

/// Bit `i` of the high word is the fifth bit of code `i`.
#[inline(always)]
fn fifth_bit(high: u32, i: usize) -> u8 {
    u8::from(high >> i & 1 == 1) << 4
}

#[inline(always)]
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, high) = (f16_at(block, 0), u32_at(block, 2));
    for (i, (o, code)) in out.iter_mut().zip(nibbles(&block[6..])).enumerate() {
        *o = d * (f32::from(code | fifth_bit(high, i)) - 16.0);
    }
}

#[inline(always)]
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, high) = (f16_at(block, 0), f16_at(block, 2), u32_at(block, 4));
    for (i, (o, code)) in out.iter_mut().zip(nibbles(&block[8..])).enumerate() {
        *o = d * f32::from(code | fifth_bit(high, i)) + m;
    }
}

/// Scale and minimum of sub-block `j`, 6 bits each. The first four pairs lie in the low six bits
/// of bytes 0..4 and 4..8; the last four have their low nibbles in bytes 8..12 and their upper two
/// bits on top of the first eight bytes.
#[inline(always)]
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        let low = packed[j + 4];
        (low & 15 | packed[j - 4] >> 6 << 4, low >> 4 | packed[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}

/// Code `i` of sub-block `j`: each run of 32 bytes holds two sub-blocks, low nibbles first.
#[inline(always)]
fn k_nibble(packed: &[u8], j: usize, i: usize) -> u8 {
    packed[j / 2 * 32 + i] >> (j % 2 * 4) & 15
}

#[inline(always)]
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], j);
        let (scale, min) = (d * scale, dmin * min);
        for (i, o) in out.iter_mut().enumerate() {
            *o = scale * f32::from(k_nibble(&block[16..], j, i)) - min;
        }
    }
}

#[inline(always)]
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let high = &block[16..48];
    for (j, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scale, min) = scale_min(&block[4..16], j);
        let (scale, min) = (d * scale, dmin * min);
        for (i, o) in out.iter_mut().enumerate() {
            let q = k_nibble(&block[48..], j, i) | (high[i] >> j & 1) << 4;
            *o = scale * f32::from(q) - min;
        }
    }
}

/// Two halves of 128. In each, quarter `j` of 32 codes takes its low nibbles from byte run `j % 2`
/// (low nibbles for quarters 0 and 1, high for 2 and 3) and bit pair `j` of the 32 high bytes.
#[inline(always)]
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = f16_at(block, 208);
    for (at, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (half, j) = (at / 4, at % 4);
        let (low, high) = (&low[half * 64 + j % 2 * 32..], &high[half * 32..]);
        let codes: [u8; 32] =
            from_fn(|i| low[i] >> (j / 2 * 4) & 15 | (high[i] >> (j * 2) & 3) << 4);
        let scales: [f32; 2] = from_fn(|run| d * f32::from(scales[at * 2 + run].cast_signed()));
        for (i, (o, code)) in out.iter_mut().zip(codes).enumerate() {
            *o = scales[i / 16] * (f32::from(code) - 32.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(format: Format, bytes: &[u8]) -> Vec<f32> {
        let mut out = vec![f32::NAN; bytes.len() / format.block_bytes() * format.block_len()];
        format.decode(bytes, &mut out);
        out
    }

    #[test]
    fn plain_formats_by_hand() {
        // 1.5 = 1.1b: f32 0x3fc00000, f16 sign 0 exponent 15 mantissa 10_0000_0000b = 0x3e00,
        // bf16 the upper half of the f32. −2: f16 sign 1 exponent 16 = 0xc000, bf16 0xc000.
        assert_eq!(decoded(Format::F32, &[0, 0, 0xc0, 0x3f]), [1.5]);
        assert_eq!(decoded(Format::F16, &[0, 0x3e, 0, 0xc0]), [1.5, -2.0]);
        assert_eq!(decoded(Format::Bf16, &[0xc0, 0x3f, 0, 0xc0]), [1.5, -2.0]);
        // The smallest f16 subnormal is 2^-24.
        assert_eq!(decoded(Format::F16, &[1, 0]), [2f32.powi(-24)]);
    }

    #[test]
    fn wide_registers_decode_the_same() {
        let mut state = 1u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(4096)
        .collect();
        for &format in Format::ALL {
            let blocks = bytes.len() / format.block_bytes();
            let bytes = &bytes[..blocks * format.block_bytes()];
            let mut plain = vec![0.0; blocks * format.block_len()];
            format.decode_blocks(bytes, &mut plain);
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&decoded(format, bytes)), bits(&plain), "{}", format.name());
        }
    }

    #[test]
    fn q4_0_by_hand() {
        // d = 1.5; byte 0x9f: low nibble 15 → 1.5·7 = 10.5, high nibble 9 → 1.5·1.
        let mut block = [0x9f; 18];
        block[..2].copy_from_slice(&[0, 0x3e]);
        assert_eq!(decoded(Format::Q4_0, &block), [[10.5; 16], [1.5; 16]].concat());
    }

    #[test]
    fn q5_1_by_hand() {
        // d = 1.5, m = −2, only the fifth bit of code 17 set, every nibble 1 or 2:
        // 1.5·1 − 2 = −0.5, 1.5·2 − 2 = 1, and code 17 is 18: 1.5·18 − 2 = 25.
        let mut block = [0x21; 24];
        block[..8].copy_from_slice(&[0, 0x3e, 0, 0xc0, 0, 0, 2, 0]);
        let mut expected = [[-0.5; 16], [1.0; 16]].concat();
        expected[17] = 25.0;
        assert_eq!(decoded(Format::Q5_1, &block), expected);
    }

    #[test]
    fn six_bit_scales_by_hand() {
        // Byte 1 = 11_000101b: scale 1 is 5, and its top bits 11b go over scale 5.
        // Byte 5 = 10_000111b: minimum 1 is 7, and its top bits 10b go over minimum 5.
        // Byte 9 = 0x94: scale 5 = 11_0100b = 52, minimum 5 = 10_1001b = 41.
        let mut packed = [0u8; 12];
        (packed[1], packed[5], packed[9]) = (0b1100_0101, 0b1000_0111, 0x94);
        assert_eq!(scale_min(&packed, 1), (5.0, 7.0));
        assert_eq!(scale_min(&packed, 5), (52.0, 41.0));
        assert_eq!(scale_min(&packed, 4), (0.0, 0.0));
    }

    #[test]
    fn matches_goldens_bit_for_bit() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/dequant");
        for &format in Format::ALL.iter().filter(|f| f.block_len() > 1) {
            let name = format.name().to_uppercase();
            let bytes = std::fs::read(format!("{folder}/{name}.blocks.bin")).unwrap();
            let expected = std::fs::read(format!("{folder}/{name}.expected.f32")).unwrap();
            let got = decoded(format, &bytes);
            assert_eq!(got.len(), 24 * format.block_len(), "{name}");
            assert_eq!(got.len() * 4, expected.len(), "{name}");
            for (i, (got, expected)) in got.iter().zip(expected.as_chunks().0).enumerate() {
                let expected = f32::from_le_bytes(*expected);
                assert_eq!(got.to_bits(), expected.to_bits(), "{name}[{i}]: {got} {expected}");
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<_> = Format::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Format::ALL.len());
    }

    #[test]
    fn a_ragged_row_is_the_beginning_of_a_whole_one() {
        assert_eq!(Format::Q4K.row_bytes(1152), 5 * 144);
        let bytes: Vec<u8> = (0..2 * 34).map(|i| (i * 7 % 120) as u8).collect();
        let (mut whole, mut ragged) = ([0.0; 64], [0.0; 37]);
        Format::Q8_0.decode(&bytes, &mut whole);
        Format::Q8_0.decode(&bytes, &mut ragged);
        assert_eq!(ragged, whole[..37]);
    }

    proptest! {
        #[test]
        fn blocks_decode_alone_as_in_a_row(
            format in prop::sample::select(Format::ALL),
            bytes in prop::collection::vec(any::<u8>(), 3 * 210),
        ) {
            let row = decoded(format, &bytes[..3 * format.block_bytes()]);
            let alone = bytes.chunks(format.block_bytes()).take(3).flat_map(|b| decoded(format, b));
            for (row, alone) in row.into_iter().zip(alone) {
                prop_assert!(row.to_bits() == alone.to_bits() || row.is_nan() && alone.is_nan());
            }
        }
    }
}
