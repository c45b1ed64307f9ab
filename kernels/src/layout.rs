//! Layouts the kernels agree on with whoever fills their buffers: weight rows, the step state,
//! the rope table, padding.

/// Every tensor is allocated in multiples of this many bytes, so that a kernel may load the last
/// elements of a vector whole. What lies in the padding is undefined; kernels mask it.
pub const TENSOR_ALIGN: usize = 32;

/// Storage formats of weights that kernels read, as the value of the `WEIGHT` parameter. Quantised
/// ones are ggml's, block for block; what the fields mean is in `lathe_reference::quant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
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
    /// 4-bit codes, superblocks of 8 x 32 with 6-bit scales and minimums.
    Q4K,
    /// 5-bit codes, superblocks of 8 x 32 with 6-bit scales and minimums.
    Q5K,
    /// 6-bit codes around 32, superblocks of 16 x 16 with 8-bit scales.
    Q6K,
}

/// A plane of a packed row: one field of all its blocks, in order. Byte offset and length of the
/// field in a block.
type Plane = (usize, usize);

impl Format {
    /// In the order of their `WEIGHT` values.
    pub const ALL: &'static [Format] = {
        use Format::*;
        &[F32, F16, Bf16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4K, Q5K, Q6K]
    };
    /// One value after another, without blocks.
    pub const DENSE: &'static [Format] = Self::ALL.split_at(3).0;
    /// In blocks with scales.
    pub const QUANTISED: &'static [Format] = Self::ALL.split_at(3).1;

    /// The value of the `WEIGHT` override.
    pub fn code(self) -> f64 {
        f64::from(self as u32)
    }

    /// The format of a `WEIGHT` value. Panics on a value no shape can hold.
    pub fn from_code(code: usize) -> Self {
        Self::ALL[code]
    }

    /// Name as in `--shape WEIGHT=…`.
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

    /// Whether elements are stored one by one, without blocks.
    pub fn is_dense(self) -> bool {
        self.block_len() == 1
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
        self.planes().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The fields of a block in the order in which [`Packing::Planes`] lays them out: codes, high
    /// bits, scales.
    pub fn planes(self) -> &'static [Plane] {
        match self {
            Format::F32 => &[(0, 4)],
            Format::F16 | Format::Bf16 => &[(0, 2)],
            Format::Q8_0 => &[(2, 32), (0, 2)],
            Format::Q4_0 => &[(2, 16), (0, 2)],
            Format::Q4_1 => &[(4, 16), (0, 4)],
            Format::Q5_0 => &[(6, 16), (2, 4), (0, 2)],
            Format::Q5_1 => &[(8, 16), (4, 4), (0, 4)],
            Format::Q4K => &[(16, 128), (0, 16)],
            Format::Q5K => &[(48, 128), (16, 32), (0, 16)],
            Format::Q6K => &[(0, 128), (128, 64), (192, 16), (208, 2)],
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
            Packing::Planes => self.plane_starts(k).last().map_or(0, |(_, end)| *end),
        }
    }

    /// Start and end of every plane in a packed row of `k` elements, each a multiple of 16 bytes.
    pub fn plane_starts(self, k: usize) -> Vec<(usize, usize)> {
        let mut end = 0;
        let plane = |(_, bytes): &Plane| {
            let start = end;
            end = (start + self.blocks(k) * bytes).next_multiple_of(16);
            (start, end)
        };
        self.planes().iter().map(plane).collect()
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
            for ((from, bytes), (start, _)) in self.planes().iter().zip(&starts) {
                let fields = out[*start..].chunks_exact_mut(*bytes);
                for (block, field) in row.chunks_exact(self.block_bytes()).zip(fields) {
                    field.copy_from_slice(&block[*from..from + bytes]);
                }
            }
        }
    }
}

/// How packed weight rows are laid out in device memory. A row never shares 16 bytes with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Packing {
    /// Rows as in the file. The only packing of dense rows.
    Blocks,
    /// Within each row the fields of its blocks apart (see [`Format::planes`]), every plane on 16
    /// bytes: all codes are loaded as `vec4<u32>`, whatever the block's length is.
    Planes,
}

impl Packing {
    /// Names, in the order of the `PACKING` values.
    pub const NAMES: &'static [&'static str] = &["blocks", "planes"];

    /// The value of the `PACKING` override.
    pub fn code(self) -> f64 {
        f64::from(self as u32)
    }

    /// The packing of a `PACKING` value. Panics on a value no shape can hold.
    pub fn from_code(code: usize) -> Self {
        [Packing::Blocks, Packing::Planes][code]
    }
}

/// Storage formats of activations, as the value of the `ACTS` parameter.
pub const ACT_NAMES: &[&str] = &["f32", "f16"];

/// Bytes of one activation of a shape.
pub(crate) fn act_bytes(s: &crate::Shape) -> f64 {
    if s.dim("ACTS") == 1 { 2.0 } else { 4.0 }
}

/// Storage formats of the KV cache, as the value of the `KV` parameter.
pub const KV_NAMES: &[&str] = &["f32", "f16"];

/// Words of the step state buffer. There is one counter of tokens seen, for global and
/// sliding-window caches alike: nothing can fall out of step with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateWord {
    /// Position of the token being processed; equals the number of tokens seen before it.
    Position = 0,
    /// `tokens[0..given]` came from the host and are never replaced by sampled ones.
    Given = 1,
    /// The last step's choice, whether or not it was used.
    Choice = 2,
    /// Seed of sampling; with the position it gives each step's random number.
    Seed = 3,
}

/// Words in the step state buffer.
pub const STATE_WORDS: usize = 4;

/// What a rope table holds; the table itself is derived from this.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the geometric series of frequencies.
    pub base: f32,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions 0..positions.
    pub positions: usize,
    /// Divisors of the frequencies, head_dim/2 of them (Llama 3's `rope_freqs.weight`).
    pub freq_factors: Option<Vec<f32>>,
}

impl RopeSpec {
    /// `(cos, sin)` of `position * base^(-2i/head_dim) / factor[i]`, as
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
                table.push(cos as f32);
                table.push(sin as f32);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn planes_cover_every_byte_of_a_block_once() {
        for format in Format::ALL {
            let mut planes = format.planes().to_vec();
            planes.sort_unstable();
            let mut end = 0;
            for (from, bytes) in planes {
                assert_eq!(from, end, "{}", format.name());
                end = from + bytes;
            }
            assert_eq!(end, format.block_bytes());
        }
    }

    #[test]
    fn planes_by_hand() {
        // Two q4_0 blocks: scales 0x0100 and 0x1312, codes 2..18 and 20..36.
        let row: Vec<u8> = (0..36).collect();
        let mut packed = vec![0xff; Format::Q4_0.row_stride(64, Packing::Planes)];
        Format::Q4_0.pack(&row, 64, Packing::Planes, &mut packed);
        assert_eq!(packed.len(), 48);
        assert_eq!(packed[..16], row[2..18]);
        assert_eq!(packed[16..32], row[20..36]);
        assert_eq!(packed[32..36], [0, 1, 18, 19]);
        assert_eq!(packed[36..], [0; 12]);
    }

    #[test]
    fn rope_table_has_the_angles() {
        let spec = RopeSpec { base: 100.0, head_dim: 4, positions: 3, freq_factors: None };
        let t = spec.table();
        // position 2: angles 2 * 100^0 = 2 and 2 * 100^(-1/2) = 0.2
        assert_eq!(
            t[8..],
            [2f64.cos() as f32, 2f64.sin() as f32, 0.2f64.cos() as f32, 0.2f64.sin() as f32]
        );
    }
}
