//! Layouts the kernels agree on with whoever fills their buffers: weight rows, the rope table,
//! padding.

use half::{bf16, f16};

use crate::codes::{FloatFormat, Format, KV_BLOCK, KvFormat, Order, Packing, RopeFactors};

/// Every tensor is allocated in multiples of this many bytes, so that a kernel may load the last
/// elements of a vector whole. The padding is undefined; kernels mask it.
pub const TENSOR_ALIGN: usize = 32;

/// A plane of a packed row: one field of every block, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    /// Some bits of the quant of every weight.
    Bits {
        /// Bits a weight: 1, 2 or 4.
        bits: u32,
        /// The lowest of them in the quant.
        shift: u32,
    },
    /// Quants of four bits, in the order of [`Plane::Bits`]. Two neighbours a and b share a byte;
    /// the upper bit of b is inverted: as a signed number the byte is a + 16 (b - 8).
    Pairs,
    /// Bytes of the block as they are: scales, whole quants.
    Bytes {
        /// The first.
        offset: usize,
        /// Number of bytes.
        bytes: usize,
    },
}

/// Low four bits of the quants.
const LOW: Plane = Plane::Bits { bits: 4, shift: 0 };
/// The fifth bit of the codes.
const FIFTH: Plane = Plane::Bits { bits: 1, shift: 4 };
/// The upper two bits of six.
const UPPER: Plane = Plane::Bits { bits: 2, shift: 4 };

const fn bytes(offset: usize, bytes: usize) -> Plane {
    Plane::Bytes { offset, bytes }
}

impl Plane {
    /// Bytes it takes of a block of `len` weights.
    pub fn bytes_of(self, len: usize) -> usize {
        match self {
            Plane::Bits { bits, .. } => len * bits as usize / 8,
            Plane::Pairs => len / 2,
            Plane::Bytes { bytes, .. } => bytes,
        }
    }

    /// The bit of a word at which the field of its weight `i` (of 32 / `bits`) begins. Of every
    /// eight weights the first four lie in the lower half-word and the last four, in the same
    /// places, in the upper one: with one shift and one mask two fields lie in the mantissas of a
    /// pair of f16. Four-bit fields so stand in the order of the weights.
    const fn bit(bits: u32, i: u32) -> u32 {
        16 * (i / 4 % 2) + bits * (4 * (i / 8) + i % 4)
    }
}

impl Format {
    /// Returns true if elements are stored one by one, without blocks.
    pub fn is_dense(self) -> bool {
        self.floats().is_some()
    }

    /// This format as one of plain values; `None` for blocks.
    pub fn floats(self) -> Option<FloatFormat> {
        match self {
            Format::F32 => Some(FloatFormat::F32),
            Format::F16 => Some(FloatFormat::F16),
            Format::Bf16 => Some(FloatFormat::Bf16),
            _ => None,
        }
    }

    /// Elements of a block.
    pub fn block_len(self) -> usize {
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => 1,
            Format::Q8_0 | Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 => 32,
            Format::Q4K | Format::Q5K | Format::Q6K => 256,
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.planes().iter().map(|plane| plane.bytes_of(self.block_len())).sum()
    }

    /// Fields that [`Packing::Soa`] lays out apart, in order: codes, higher bits, scales.
    pub fn planes(self) -> &'static [Plane] {
        match self {
            Format::F32 => const { &[bytes(0, 4)] },
            Format::F16 | Format::Bf16 => const { &[bytes(0, 2)] },
            Format::Q8_0 => const { &[bytes(2, 32), bytes(0, 2)] },
            Format::Q4_0 => const { &[Plane::Pairs, bytes(0, 2)] },
            Format::Q4_1 => const { &[Plane::Pairs, bytes(0, 4)] },
            Format::Q5_0 => const { &[LOW, FIFTH, bytes(0, 2)] },
            Format::Q5_1 => const { &[LOW, FIFTH, bytes(0, 4)] },
            Format::Q4K => const { &[Plane::Pairs, bytes(0, 16)] },
            Format::Q5K => const { &[LOW, FIFTH, bytes(0, 16)] },
            Format::Q6K => const { &[LOW, UPPER, bytes(192, 16), bytes(208, 2)] },
        }
    }

    /// The fields of a block by their names, as files have them that keep each in a buffer of its
    /// own; none of formats without blocks.
    pub fn fields_apart(self) -> &'static [(&'static str, Plane)] {
        const D: (&str, Plane) = ("d", bytes(0, 2));
        const M: (&str, Plane) = ("m", bytes(2, 2));
        const CODES: (&str, Plane) = ("codes", LOW);
        const HIGH: (&str, Plane) = ("high", FIFTH);
        const SCALES: (&str, Plane) = ("scales", bytes(4, 12));
        match self {
            Format::F32 | Format::F16 | Format::Bf16 => &[],
            Format::Q8_0 => const { &[("codes", bytes(2, 32)), D] },
            Format::Q4_0 => const { &[CODES, D] },
            Format::Q4_1 => const { &[CODES, D, M] },
            Format::Q5_0 => const { &[CODES, HIGH, D] },
            Format::Q5_1 => const { &[CODES, HIGH, D, M] },
            Format::Q4K => const { &[CODES, D, M, SCALES] },
            Format::Q5K => const { &[CODES, HIGH, D, M, SCALES] },
            Format::Q6K => {
                const { &[CODES, ("high", UPPER), ("scales", bytes(192, 16)), ("d", bytes(208, 2))] }
            }
        }
    }

    /// One field of all blocks, one after the other.
    pub fn field(self, field: Plane, blocks: &[u8]) -> Vec<u8> {
        let len = field.bytes_of(self.block_len());
        let mut all = vec![0; blocks.len() / self.block_bytes() * len];
        let mut codes = [0; 256];
        let codes = &mut codes[..self.block_len()];
        let blocks = blocks.chunks_exact(self.block_bytes());
        for (block, out) in blocks.zip(all.chunks_exact_mut(len)) {
            self.codes(block, codes);
            self.copy_field(field, block, codes, out);
        }
        all
    }

    fn copy_field(self, field: Plane, block: &[u8], codes: &[u8], out: &mut [u8]) {
        match field {
            Plane::Bytes { offset, bytes } => out.copy_from_slice(&block[offset..offset + bytes]),
            Plane::Bits { bits, shift } => put(bits, shift, 0, codes, out),
            Plane::Pairs => put(4, 0, 0x8080_8080, codes, out),
        }
    }

    /// The codes of a block in the order of its weights, for formats with [`Plane::Bits`].
    fn codes(self, block: &[u8], codes: &mut [u8]) {
        // 32 bytes of nibbles are two runs of 32, 16 bytes two of 16: low nibbles, then high ones.
        let nibbles = |bytes: &[u8], run: usize, codes: &mut [u8]| {
            for (bytes, codes) in bytes.chunks_exact(run).zip(codes.chunks_exact_mut(2 * run)) {
                let (low, high) = codes.split_at_mut(run);
                for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
                    (*low, *high) = (byte & 15, byte >> 4);
                }
            }
        };
        match self {
            Format::F32 | Format::F16 | Format::Bf16 | Format::Q8_0 => {}
            Format::Q4_0 => nibbles(&block[2..], 16, codes),
            Format::Q4_1 => nibbles(&block[4..], 16, codes),
            Format::Q5_0 | Format::Q5_1 => {
                let (high, low) = block[self.block_bytes() - 20..].split_at(4);
                nibbles(low, 16, codes);
                for (i, code) in codes.iter_mut().enumerate() {
                    *code |= (high[i / 8] >> (i % 8) & 1) << 4;
                }
            }
            Format::Q4K => nibbles(&block[16..], 32, codes),
            Format::Q5K => {
                nibbles(&block[48..], 32, codes);
                for (i, code) in codes.iter_mut().enumerate() {
                    *code |= (block[16 + i % 32] >> (i / 32) & 1) << 4;
                }
            }
            Format::Q6K => {
                let (low, high) = block[..192].split_at(128);
                nibbles(low, 64, codes);
                for (i, code) in codes.iter_mut().enumerate() {
                    *code |= (high[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) << 4;
                }
            }
        }
    }

    /// Blocks of a row of `k` elements; the last may be padded.
    pub fn blocks(self, k: usize) -> usize {
        k.div_ceil(self.block_len())
    }

    /// Bytes of a row of `k` elements as in a file.
    pub fn row_bytes(self, k: usize) -> usize {
        self.blocks(k) * self.block_bytes()
    }

    /// Bytes from one packed row of `k` elements to the next: rows, and planes within them, start
    /// on 16 bytes, so that a kernel loads them as `vec4<u32>` whatever `k` is.
    pub fn row_stride(self, k: usize, packing: Packing) -> usize {
        match packing {
            Packing::Blocks => self.row_bytes(k).next_multiple_of(16),
            Packing::Soa => self.plane_starts(k).last().map_or(0, |(_, end)| *end),
        }
    }

    /// Start and end of every plane in a packed row of `k` elements, each a multiple of 16 bytes.
    pub fn plane_starts(self, k: usize) -> Vec<(usize, usize)> {
        let mut end = 0;
        let plane = |plane: &Plane| {
            let start = end;
            end = (start + self.blocks(k) * plane.bytes_of(self.block_len())).next_multiple_of(16);
            (start, end)
        };
        self.planes().iter().map(plane).collect()
    }

    /// The layout of packed rows of `k` elements as the overrides of `format/weight_four.wgsl`.
    pub(crate) fn fields(self, k: usize, packing: Packing) -> Vec<(&'static str, f64)> {
        let planes = self.planes();
        let starts = self.plane_starts(k);
        // Where the first block's field of a plane lies, and how far the next block's.
        let field = |plane: Option<usize>| match (plane, packing) {
            (None, _) => (0, 0),
            (Some(p), Packing::Blocks) => (self.offset(planes[p]), self.block_bytes()),
            (Some(p), Packing::Soa) => (starts[p].0, planes[p].bytes_of(self.block_len())),
        };
        let codes = field(Some(0));
        let high = field((planes.len() > 2).then_some(1));
        let scales = field((planes.len() > 3).then_some(2));
        let last = field(Some(planes.len() - 1));
        [
            ("PACKING", packing as usize),
            ("BLOCK", self.block_len()),
            ("ROW_BYTES", self.row_stride(k, packing)),
            ("CODES", codes.0),
            ("CODES_STEP", codes.1),
            ("HIGH", high.0),
            ("HIGH_STEP", high.1),
            ("SCALES", scales.0),
            ("SCALES_STEP", scales.1),
            ("LAST", last.0),
            ("LAST_STEP", last.1),
        ]
        .map(|(name, value)| (name, value as f64))
        .into()
    }

    /// Offset of a plane's field in a block of the file.
    fn offset(self, plane: Plane) -> usize {
        match plane {
            Plane::Bytes { offset, .. } => offset,
            // Q6_K has its codes first; the others end with the low bits, and before those come
            // the high ones.
            LOW if self == Format::Q6K => 0,
            LOW | Plane::Pairs => self.block_bytes() - LOW.bytes_of(self.block_len()),
            UPPER => 128,
            high => self.offset(LOW) - high.bytes_of(self.block_len()),
        }
    }

    /// Bytes of a packed matrix.
    pub fn packed_bytes(self, rows: usize, k: usize, packing: Packing) -> usize {
        rows * self.row_stride(k, packing)
    }

    /// Packs rows as GGUF stores them (tight, row-major) into the kernels' layout; the padding is
    /// zero. `rows` may be any run of rows of a larger matrix.
    pub fn pack(self, rows: &[u8], k: usize, packing: Packing, packed: &mut [u8]) {
        let (tight, stride) = (self.row_bytes(k), self.row_stride(k, packing));
        if packing == Packing::Blocks && tight == stride {
            packed.copy_from_slice(rows);
            return;
        }
        packed.fill(0);
        let starts = self.plane_starts(k);
        for (row, out) in rows.chunks_exact(tight).zip(packed.chunks_exact_mut(stride)) {
            if packing == Packing::Blocks {
                out[..tight].copy_from_slice(row);
                continue;
            }
            let mut codes = [0; 256];
            let codes = &mut codes[..self.block_len()];
            for (i, block) in row.chunks_exact(self.block_bytes()).enumerate() {
                self.codes(block, codes);
                for (plane, (start, _)) in self.planes().iter().zip(&starts) {
                    let len = plane.bytes_of(self.block_len());
                    let out = &mut out[start + i * len..][..len];
                    self.copy_field(*plane, block, codes, out);
                }
            }
        }
    }
}

/// Writes `bits` bits from `shift` on of every code, in words laid out as [`Plane::bit`] says, of
/// which the bits of `inverted` are inverted.
fn put(bits: u32, shift: u32, inverted: u32, codes: &[u8], out: &mut [u8]) {
    let words = out.chunks_exact_mut(4);
    for (word, codes) in words.zip(codes.chunks_exact(32 / bits as usize)) {
        let mut all = 0;
        for (i, code) in (0..).zip(codes) {
            all |= (u32::from(*code) >> shift & ((1 << bits) - 1)) << Plane::bit(bits, i);
        }
        word.copy_from_slice(&(all ^ inverted).to_le_bytes());
    }
}

impl FloatFormat {
    /// The stored value nearest to `value`, ties to even.
    pub fn round(self, value: f32) -> f32 {
        match self {
            FloatFormat::F32 => value,
            FloatFormat::F16 => f16::from_f32(value).to_f32(),
            FloatFormat::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }

    /// Values as stored, in whole words.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        let each = values.iter();
        let mut bytes: Vec<u8> = match self {
            FloatFormat::F32 => each.flat_map(|v| v.to_le_bytes()).collect(),
            FloatFormat::F16 => each.flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            FloatFormat::Bf16 => each.flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// The first `len` stored values, widened.
    pub fn decode(self, bytes: &[u8], len: usize) -> Vec<f32> {
        let halves = || bytes.chunks_exact(2).take(len).map(|b| [b[0], b[1]]);
        match self {
            FloatFormat::F32 => {
                let words = bytes.chunks_exact(4).take(len);
                words.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            FloatFormat::F16 => halves().map(|b| f16::from_le_bytes(b).to_f32()).collect(),
            FloatFormat::Bf16 => halves().map(|b| bf16::from_le_bytes(b).to_f32()).collect(),
        }
    }
}

/// Storage of the vectors of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvVectors {
    /// Storage.
    pub format: KvFormat,
    /// Values of a vector.
    pub head_dim: usize,
}

impl KvVectors {
    /// Bytes of a vector.
    pub const fn bytes(self) -> usize {
        self.format.vector_bytes(self.head_dim)
    }

    /// Bytes of the vectors that hold `len` values.
    pub const fn bytes_of(self, len: usize) -> usize {
        match self.format {
            KvFormat::Q8_0 => len / self.head_dim * self.bytes(),
            KvFormat::F32 => 4 * len,
            KvFormat::F16 => 2 * len,
        }
    }

    /// Vectors as stored.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self.format {
            KvFormat::F32 => FloatFormat::F32.encode(values),
            KvFormat::F16 => FloatFormat::F16.encode(values),
            KvFormat::Q8_0 => {
                let mut bytes = Vec::with_capacity(self.bytes_of(values.len()));
                for vector in values.chunks_exact(self.head_dim) {
                    let begin = bytes.len();
                    let blocks = vector.chunks(KV_BLOCK);
                    let scales: Vec<f16> = blocks
                        .map(|block| {
                            // NaN is above all numbers.
                            let most = block.iter().map(|v| v.abs()).max_by(f32::total_cmp);
                            let most = most.unwrap_or(0.0);
                            let inverse = if most > 0.0 { 127.0 / most } else { 0.0 };
                            let quants = block.iter().map(|v| (v * inverse).round_ties_even());
                            bytes.extend(quants.map(|q| (q as i8).to_le_bytes()[0]));
                            f16::from_f32(most / 127.0)
                        })
                        .collect();
                    bytes.resize(begin + 16 * self.head_dim.div_ceil(16), 0);
                    bytes.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
                    bytes.resize(begin + self.bytes(), 0);
                }
                bytes
            }
        }
    }

    /// The first `len` stored values, widened.
    pub fn decode(self, bytes: &[u8], len: usize) -> Vec<f32> {
        match self.format {
            KvFormat::F32 => FloatFormat::F32.decode(bytes, len),
            KvFormat::F16 => FloatFormat::F16.decode(bytes, len),
            KvFormat::Q8_0 => {
                let mut values = Vec::with_capacity(len);
                for vector in bytes.chunks_exact(self.bytes()).take(len / self.head_dim) {
                    let (quants, scales) = vector.split_at(16 * self.head_dim.div_ceil(16));
                    let blocks = quants[..self.head_dim].chunks(KV_BLOCK);
                    for (block, scale) in blocks.zip(scales.chunks_exact(2)) {
                        let scale = f16::from_le_bytes([scale[0], scale[1]]).to_f32();
                        values.extend(block.iter().map(|q| f32::from(*q as i8) * scale));
                    }
                }
                values
            }
        }
    }

    /// The stored values nearest to `values`, whole vectors.
    pub fn round(self, values: &[f32]) -> Vec<f32> {
        self.decode(&self.encode(values), values.len())
    }
}

impl Order {
    /// Streams of a matrix of `rows` rows of `k` values, and the length of each.
    pub fn streams(self, rows: usize, k: usize) -> (usize, usize) {
        match self {
            Order::RowWise => (rows, k),
            Order::Flat => (1, rows * k),
            Order::ColumnWise => (k, rows),
        }
    }
}

/// Parameters of a rope table, from which the table is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the geometric series of frequencies.
    pub base: f32,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions 0..positions.
    pub positions: usize,
    /// Divisors of the frequencies, head_dim/2 of them; none means 1.
    pub freq_factors: Option<Vec<f32>>,
    /// Factor on cosines and sines: yarn's attention factor, else 1.
    pub amplitude: f32,
}

impl RopeSpec {
    /// The table that checks of an operation with these parameters use: all positions up to the
    /// current one, and divisors from 1 to 32 where there are some.
    pub fn drawn(base: f32, head_dim: usize, factors: RopeFactors, n_kv: usize) -> Self {
        let divisor = |i: usize| match factors {
            RopeFactors::Linear => 8.0,
            _ => 1.0 + 31.0 * (i % 7) as f32 / 6.0,
        };
        let divisors = || (0..head_dim / 2).map(divisor).collect();
        Self {
            base,
            head_dim,
            positions: n_kv,
            freq_factors: (factors != RopeFactors::None).then(divisors),
            // Far enough from one for a kernel that drops it to fail.
            amplitude: if factors == RopeFactors::Yarn { 1.25 } else { 1.0 },
        }
    }

    /// `amplitude * (cos, sin)` of `position * base^(-2i/head_dim) / factor[i]`, as
    /// `[positions][head_dim/2][2]`. Computed in f64 on the host: WGSL promises `sin` and `cos`
    /// only to 2^-11 and only within one turn, too little at position 30000.
    pub fn table(&self) -> Vec<f32> {
        let half = self.head_dim / 2;
        let mut table = Vec::with_capacity(self.positions * self.head_dim);
        let frequencies: Vec<f64> = (0..half)
            .map(|i| {
                let exponent = -2.0 * i as f64 / self.head_dim as f64;
                let factor = self.freq_factors.as_ref().map_or(1.0, |f| f64::from(f[i]));
                f64::from(self.base).powf(exponent) / factor
            })
            .collect();
        for position in 0..self.positions {
            for frequency in &frequencies {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                table.push((f64::from(self.amplitude) * cos) as f32);
                table.push((f64::from(self.amplitude) * sin) as f32);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_q8_0_have_their_scales_behind_them() {
        let vectors = KvVectors { format: KvFormat::Q8_0, head_dim: 40 };
        assert_eq!((vectors.bytes(), vectors.bytes_of(80)), (48 + 16, 128));
        let mut values = vec![0.0; 80];
        // Two blocks in the first vector, the second of eight values; one value in the other.
        (values[0], values[1], values[33], values[79]) = (254.0, -3.0, 127.0, -63.5);
        let bytes = vectors.encode(&values);
        assert_eq!(bytes.len(), 128);
        // -1.5 quants become -2, to even.
        assert_eq!((bytes[0], bytes[1] as i8, bytes[33]), (127, -2, 127));
        let scale = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
        assert_eq!((scale(48), scale(50), scale(64 + 50)), (2.0, 1.0, 0.5));
        assert_eq!(bytes[64 + 39] as i8, -127);
        let stored = vectors.decode(&bytes, 80);
        assert_eq!((stored[0], stored[1], stored[33], stored[79]), (254.0, -4.0, 127.0, -63.5));
        assert_eq!(vectors.round(&stored), stored);
    }

    /// Encoding a stored vector again changes nothing, whatever its scale.
    #[test]
    fn stored_vectors_stay() {
        for format in KvFormat::ALL {
            let vectors = KvVectors { format: *format, head_dim: 96 };
            for exponent in -30..12 {
                let value = |i: usize| ((i * 7919 % 193) as f32 - 96.0) * 2f32.powi(exponent) / 7.0;
                let values: Vec<f32> = (0..192).map(value).collect();
                let stored = vectors.round(&values);
                assert_eq!(vectors.encode(&stored), vectors.encode(&vectors.round(&stored)));
                assert_eq!(vectors.round(&stored), stored, "{format:?} 2^{exponent}");
            }
        }
    }

    #[test]
    fn rows_are_padded_to_sixteen_bytes() {
        assert_eq!(Format::F16.row_stride(9, Packing::Blocks), 32);
        let mut packed = vec![0xff; 64];
        let canonical: Vec<u8> = (0..36).collect();
        Format::F16.pack(&canonical, 9, Packing::Blocks, &mut packed);
        assert_eq!(packed[..18], canonical[..18]);
        assert_eq!(packed[18..32], [0; 14]);
        assert_eq!(packed[32..50], canonical[18..]);
    }

    #[test]
    fn planes_hold_as_many_bytes_as_a_block() {
        let bytes: Vec<_> = Format::ALL.iter().map(|f| f.block_bytes()).collect();
        assert_eq!(bytes, [4, 2, 2, 34, 18, 20, 22, 24, 144, 176, 210]);
    }

    #[test]
    fn planes_by_hand() {
        // Two q4_0 blocks: scales 0x0100 and 0x1312, codes of the low nibbles of bytes 2..18 and
        // 20..36, then their high nibbles (0, and from byte 16 on 1; 1, and from byte 32 on 2); of
        // every second nibble the upper bit is inverted.
        let row: Vec<u8> = (0..36).collect();
        let mut packed = vec![0xff; Format::Q4_0.row_stride(64, Packing::Soa)];
        Format::Q4_0.pack(&row, 64, Packing::Soa, &mut packed);
        assert_eq!(packed.len(), 48);
        assert_eq!(packed[..8], [0xb2, 0xd4, 0xf6, 0x18, 0x3a, 0x5c, 0x7e, 0x90]);
        assert_eq!(packed[8..16], [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x91]);
        assert_eq!(packed[16..24], [0xd4, 0xf6, 0x18, 0x3a, 0x5c, 0x7e, 0x90, 0xb2]);
        assert_eq!(packed[24..32], [0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0xa2, 0xa2]);
        assert_eq!(packed[32..36], [0, 1, 18, 19]);
        assert_eq!(packed[36..], [0; 12]);
    }

    #[test]
    fn higher_bits_pair_weights_four_apart() {
        // One q5_0 block with only the fifth bits of codes 0, 4, 9 and 31: places 0, 16 + 0, 4 + 1
        // and 16 + 12 + 3.
        let mut row = [0; 22];
        row[2..6].copy_from_slice(&(1u32 | 1 << 4 | 1 << 9 | 1 << 31).to_le_bytes());
        let mut packed = [0xff; 48];
        Format::Q5_0.pack(&row, 32, Packing::Soa, &mut packed);
        assert_eq!(packed[..16], [0; 16]);
        assert_eq!(packed[16..20], (1u32 | 1 << 16 | 1 << 5 | 1 << 31).to_le_bytes());
        // One q6_k block with 11b over codes 5 and 8: places 16 + 2 and 8.
        let mut row = [0; 210];
        (row[128 + 5], row[128 + 8]) = (3, 3);
        let mut packed = [0xff; 224];
        Format::Q6K.pack(&row, 256, Packing::Soa, &mut packed);
        assert_eq!(packed[128..132], (3u32 << 18 | 3 << 8).to_le_bytes());
        assert_eq!(packed[132..192], [0; 60]);
    }

    #[test]
    fn rope_table_has_the_angles() {
        let spec = RopeSpec::drawn(100.0, 4, RopeFactors::None, 3);
        let t = spec.table();
        // position 2: angles 2 * 100^0 = 2 and 2 * 100^(-1/2) = 0.2
        assert_eq!(
            t[8..],
            [2f64.cos() as f32, 2f64.sin() as f32, 0.2f64.cos() as f32, 0.2f64.sin() as f32]
        );
        let scaled = RopeSpec { freq_factors: Some(vec![4.0, 0.125]), amplitude: 3.0, ..spec };
        let expected = [0.5f64, 1.6].map(|angle| [3.0 * angle.cos(), 3.0 * angle.sin()]).concat();
        assert_eq!(scaled.table()[8..], [0, 1, 2, 3].map(|i| expected[i] as f32));
    }
}
