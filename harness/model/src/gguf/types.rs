//! The tensor types of ggml, with values and bytes of a block.

use std::fmt;

/// One line a type: the number in the file, the name, values and bytes of a block.
macro_rules! types {
    ($($ty:ident = $code:literal, $name:literal, $values:literal, $bytes:literal;)*) => {
        /// A tensor type as GGUF numbers them. All types of the format can be indexed and
        /// inspected; the decoder says which it can decode.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are the format's own")]
        #[allow(non_camel_case_types, reason = "the names are the format's own")]
        pub enum GgmlType {
            $($ty = $code,)*
        }

        impl GgmlType {
            const ALL: &[Self] = &[$(Self::$ty,)*];

            /// The name, values and bytes of a block.
            fn row(self) -> (&'static str, u64, u64) {
                match self {
                    $(Self::$ty => ($name, $values, $bytes),)*
                }
            }
        }
    };
}

types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2K = 10, "Q2_K", 256, 84;
    Q3K = 11, "Q3_K", 256, 110;
    Q4K = 12, "Q4_K", 256, 144;
    Q5K = 13, "Q5_K", 256, 176;
    Q6K = 14, "Q6_K", 256, 210;
    Q8K = 15, "Q8_K", 256, 292;
    Iq2Xxs = 16, "IQ2_XXS", 256, 66;
    Iq2Xs = 17, "IQ2_XS", 256, 74;
    Iq3Xxs = 18, "IQ3_XXS", 256, 98;
    Iq1S = 19, "IQ1_S", 256, 50;
    Iq4Nl = 20, "IQ4_NL", 32, 18;
    Iq3S = 21, "IQ3_S", 256, 110;
    Iq2S = 22, "IQ2_S", 256, 82;
    Iq4Xs = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    Iq1M = 29, "IQ1_M", 256, 56;
    Bf16 = 30, "BF16", 1, 2;
    Tq1_0 = 34, "TQ1_0", 256, 54;
    Tq2_0 = 35, "TQ2_0", 256, 66;
    Mxfp4 = 39, "MXFP4", 32, 17;
    Nvfp4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
}

/// Numbers that once meant a type and no longer do: old files hold them, no reader does.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl GgmlType {
    /// Every type, in the order of the format's numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied()
    }

    /// The type with this number, if there is one.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::all().find(|ty| ty.code() == code)
    }

    /// The type of one of the kernels' formats. The two agree on names.
    ///
    /// # Panics
    /// Never: a test holds the table to it.
    pub fn of(format: lathe_kernels::Format) -> Self {
        let same = |ty: &Self| ty.name().eq_ignore_ascii_case(format.name());
        Self::all().find(same).expect("ggml has every format of the kernels")
    }

    /// The kernels' format of this type, where there is one.
    pub fn format(self) -> Option<lathe_kernels::Format> {
        let all = lathe_kernels::Format::ALL.iter().copied();
        all.into_iter().find(|f| f.name().eq_ignore_ascii_case(self.name()))
    }

    /// The name of a removed type with this number.
    pub fn removed(code: u32) -> Option<&'static str> {
        REMOVED.iter().find(|row| row.0 == code).map(|row| row.1)
    }

    /// The number in the file.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The format's own name, as `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Values in a block.
    pub fn block_len(self) -> u64 {
        self.row().1
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> u64 {
        self.row().2
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for GgmlType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_types() {
        for ty in GgmlType::all() {
            assert_eq!(GgmlType::from_code(ty.code()), Some(ty));
            assert_eq!(GgmlType::removed(ty.code()), None, "{ty}");
        }
        let codes: Vec<u32> = GgmlType::all().map(GgmlType::code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
    }

    #[test]
    fn kernels_formats_are_types() {
        for &format in lathe_kernels::Format::ALL {
            assert_eq!(GgmlType::of(format).format(), Some(format));
        }
        assert_eq!(GgmlType::Q2K.format(), None);
    }

    #[test]
    fn bits_per_weight_are_as_published() {
        let bits = |ty: GgmlType| ty.block_bytes() as f64 * 8.0 / ty.block_len() as f64;
        assert_eq!(bits(GgmlType::Q8_0), 8.5);
        assert_eq!(bits(GgmlType::Q4_0), 4.5);
        assert_eq!(bits(GgmlType::Q5_1), 6.0);
        assert_eq!(bits(GgmlType::Q4K), 4.5);
        assert_eq!(bits(GgmlType::Q6K), 6.5625);
        assert_eq!(bits(GgmlType::Iq4Xs), 4.25);
        assert_eq!(bits(GgmlType::Tq2_0), 2.0625);
        assert_eq!(bits(GgmlType::Mxfp4), 4.25);
    }
}
