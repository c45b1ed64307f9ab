//! Layouts the kernels agree on with whoever fills their buffers: weight rows, the step state,
//! the rope table, padding.

/// Every tensor is allocated in multiples of this many bytes, so that a kernel may load the last
/// elements of a vector whole. What lies in the padding is undefined; kernels mask it.
pub const TENSOR_ALIGN: usize = 32;

/// Storage formats of weights that kernels read, as the value of the `WEIGHT` parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
}

impl Format {
    /// In the order of their `WEIGHT` values.
    pub const ALL: &'static [Format] = &[Format::F32, Format::F16, Format::Bf16];
    /// Their names, in the same order.
    pub const NAMES: &'static [&'static str] = &["f32", "f16", "bf16"];

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
        Self::NAMES[self as usize]
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
        }
    }

    /// Bytes from one packed row of `k` elements to the next: rows start on 16 bytes, so that a
    /// kernel loads them as `vec4<u32>` whatever `k` is.
    pub fn row_stride(self, k: usize) -> usize {
        (k * self.bytes()).next_multiple_of(16)
    }

    /// Bytes of a packed matrix.
    pub fn packed_bytes(self, rows: usize, k: usize) -> usize {
        rows * self.row_stride(k)
    }

    /// Packs rows as GGUF stores them (tight, row-major) into the kernels' layout; the padding is
    /// zero. `rows` may be any run of rows of a larger matrix.
    pub fn pack(self, canonical: &[u8], k: usize, packed: &mut [u8]) {
        let (tight, stride) = (k * self.bytes(), self.row_stride(k));
        if tight == stride {
            packed.copy_from_slice(canonical);
            return;
        }
        for (row, out) in canonical.chunks_exact(tight).zip(packed.chunks_exact_mut(stride)) {
            out[..tight].copy_from_slice(row);
            out[tight..].fill(0);
        }
    }
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
    /// The last step's greedy choice, whether or not it was used.
    Choice = 2,
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
        assert_eq!(Format::F16.row_stride(9), 32);
        let mut packed = vec![0xff; 64];
        let canonical: Vec<u8> = (0..36).collect();
        Format::F16.pack(&canonical, 9, &mut packed);
        assert_eq!(packed[..18], canonical[..18]);
        assert_eq!(packed[18..32], [0; 14]);
        assert_eq!(packed[32..50], canonical[18..]);
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
