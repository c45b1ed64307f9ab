//! Named alternatives that travel to WGSL as numbers, and the words of the step state: the one list
//! of names and codes.
//!
//! The build script includes this file, so that WGSL gets a named constant for every code
//! (`wgsl_constants`) and no number is written twice.

/// An enum whose variants have a name on the command line and a code in WGSL.
macro_rules! codes {
    (fn $constants:ident; $($(#[$meta:meta])* $name:ident($prefix:literal) {
        $($(#[$doc:meta])* $variant:ident = $text:literal,)*
    })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub enum $name {
                $($(#[$doc])* $variant,)*
            }

            impl $name {
                /// All, in the order of their codes.
                pub const ALL: &'static [Self] = &[$(Self::$variant),*];

                /// Name on the command line, in records and on pages.
                pub const fn name(self) -> &'static str {
                    match self {
                        $(Self::$variant => $text,)*
                    }
                }

                /// Value of the WGSL override.
                pub const fn code(self) -> u32 {
                    self as u32
                }
            }
        )*

        /// Their WGSL constants with values: a prefix and the alternative's name in upper case.
        #[allow(dead_code, reason = "used by the build script, which includes this file")]
        pub(crate) fn $constants() -> Vec<(String, u32)> {
            let mut all: Vec<(String, u32)> = Vec::new();
            $(
                for value in $name::ALL {
                    let constant = format!("{}{}", $prefix, value.name()).to_uppercase();
                    // Weight and float formats share the names and codes of the dense ones.
                    match all.iter().find(|(known, _)| *known == constant) {
                        Some((_, code)) => assert_eq!(*code, value.code(), "{constant}"),
                        None => all.push((constant, value.code())),
                    }
                }
            )*
            all
        }
    };
}

codes! {
    fn code_constants;

    /// Storage format of weights. Quantised ones are ggml's, block for block;
    /// `lathe_reference::quant` explains their fields.
    Format("") {
        /// IEEE binary32.
        F32 = "f32",
        /// IEEE binary16.
        F16 = "f16",
        /// bfloat16: the upper half of a binary32.
        Bf16 = "bf16",
        /// 8-bit quants, one scale per 32.
        Q8_0 = "q8_0",
        /// 4-bit quants around 8, one scale per 32.
        Q4_0 = "q4_0",
        /// 4-bit quants, one scale and minimum per 32.
        Q4_1 = "q4_1",
        /// 5-bit quants around 16, one scale per 32.
        Q5_0 = "q5_0",
        /// 5-bit quants, one scale and minimum per 32.
        Q5_1 = "q5_1",
        /// 4-bit quants, superblocks of 8 x 32 with 6-bit scales and minimums.
        Q4K = "q4_k",
        /// 5-bit quants, superblocks of 8 x 32 with 6-bit scales and minimums.
        Q5K = "q5_k",
        /// 6-bit quants around 32, superblocks of 16 x 16 with 8-bit scales.
        Q6K = "q6_k",
    }

    /// Storage format of activations and plain values.
    FloatFormat("") {
        /// 32-bit floats.
        F32 = "f32",
        /// 16-bit floats.
        F16 = "f16",
        /// The upper half of 32-bit floats; only `cast` reads and writes it.
        Bf16 = "bf16",
    }

    /// Storage format of a KV cache's vectors, each a head's key or value of one token.
    KvFormat("KV_") {
        /// 32-bit floats.
        F32 = "f32",
        /// 16-bit floats.
        F16 = "f16",
        /// 8-bit quants, one f16 scale per 32 of a vector, as ggml's blocks of this name; the
        /// scales lie after the vector's quants.
        Q8_0 = "q8_0",
    }

    /// Layout of packed weight rows in device memory. A row never shares 16 bytes with another.
    Packing("PACKING_") {
        /// Rows as in the file. The only packing of dense rows.
        Blocks = "blocks",
        /// Within each row the fields of its blocks apart (see [`Format::planes`]), every plane on
        /// 16 bytes, and the quants in the order of the weights: sixteen bytes hold 32 neighbours
        /// under one scale, whatever the format, and are loaded as a `vec4<u32>`.
        Soa = "soa",
    }

    /// In which order the values of a matrix run through the blocks of a quantised format. Its
    /// blocks hold streams of values; a stream is stored and packed as a row is. Model files have
    /// rows; the others are made when a matrix is quantised, for widths that are no whole number of
    /// blocks.
    Order("ORDER_") {
        /// Every row is a stream, its last block padded.
        RowWise = "row_wise",
        /// The matrix is one stream, row after row: blocks run across row ends and only the last is
        /// padded.
        Flat = "flat",
        /// Every column is a stream, its last block padded.
        ColumnWise = "column_wise",
    }

    /// Activation function of a gated feed-forward block.
    Activation("ACT_") {
        /// x / (1 + exp(-x)): SwiGLU.
        Silu = "silu",
        /// The tanh approximation of GELU: GeGLU.
        GeluTanh = "gelu_tanh",
    }

    /// Elements of a head that rotate together.
    RopeStyle("ROPE_") {
        /// (2i, 2i + 1).
        Interleaved = "interleaved",
        /// (i, i + head_dim / 2).
        Neox = "neox",
    }

    /// Scaling of rope.
    RopeFactors("ROPE_FACTORS_") {
        /// None.
        None = "none",
        /// Frequencies are divided one by one: Llama 3's `rope_freqs`.
        Llama3 = "llama3",
        /// All frequencies are divided by one number.
        Linear = "linear",
        /// Llama 3's divisors, with sines and cosines multiplied by a number.
        Yarn = "yarn",
    }

    /// Bias of the QKV product.
    QkvBias("BIAS_") {
        /// None.
        None = "none",
        /// Added to queries, keys and values before anything else.
        Added = "added",
    }

    /// Norm of a vector where it is read.
    Norm("NORM_") {
        /// None.
        None = "none",
        /// RMSNorm.
        Rms = "rms",
    }

    /// Convention of an RMSNorm's weight: the offset added to it.
    NormOffset("OFFSET_") {
        /// Nothing.
        Standard = "standard",
        /// One: Gemma's checkpoints outside GGUF hold w of 1 + w.
        Gemma = "gemma",
    }

    /// Part of the LM head's matrix that an operation reads.
    HeadPart("PART_") {
        /// All of it.
        Whole = "whole",
        /// The first of several.
        First = "first",
        /// Neither the first nor the last.
        Middle = "middle",
        /// The last: it makes the choice.
        Last = "last",
    }

    /// Part of an embedding table.
    TablePart("TABLE_") {
        /// All rows.
        Whole = "whole",
        /// Some: x stays as it is for tokens of the others.
        Part = "part",
    }

    /// Direction of keys and values between a ring and the rows of a chunk.
    WindowMove("WINDOW_") {
        /// The ring's tokens into the rows before the chunk's.
        ToRows = "to_rows",
        /// The chunk's rows into the ring.
        ToRing = "to_ring",
    }

    /// Owner of the tokens whose rows a dispatch has.
    TokensOf("OF_") {
        /// Neighbours of one sequence.
        One = "one",
        /// The current token of each of several sequences.
        Each = "each",
    }

    /// Contents of a row of the queries of a prefill.
    QueryRow("ROW_") {
        /// Query heads.
        Q = "q",
        /// Query, key and value heads: a row of the QKV product.
        Qkv = "qkv",
    }

    /// Factor of an output's old value (BLAS's beta).
    Beta("BETA_") {
        /// Overwritten.
        Zero = "0",
        /// Added to: a residual stream.
        One = "1",
    }
}

codes! {
    fn state_constants;

    /// Words of the step state buffer; several sequences have a row of them each. There is one
    /// counter of tokens seen, for global and sliding-window caches alike: nothing can fall out of
    /// step with it.
    StateWord("") {
        /// Position of the token being processed; equals the number of tokens seen before it.
        Position = "position",
        /// `tokens[0..prompt_len]` came from the host and are never replaced by sampled ones.
        PromptLen = "prompt_len",
        /// The last step's choice, whether or not it was used.
        Choice = "choice",
        /// Seed of sampling; with the position it gives each step's random number.
        Seed = "seed",
    }
}

/// Words in the step state buffer, of one sequence.
pub const STATE_WORDS: usize = StateWord::ALL.len();

/// Every WGSL constant with its value: the codes, and the offsets of the words of the step state.
#[allow(dead_code, reason = "used by the build script, which includes this file")]
pub(crate) fn wgsl_constants() -> Vec<(String, u32)> {
    let mut all = code_constants();
    all.extend(state_constants());
    all.push(("STATE_WORDS".to_owned(), STATE_WORDS as u32));
    all
}

impl Format {
    /// Formats without blocks.
    pub const DENSE: &'static [Format] = Self::ALL.split_at(3).0;
    /// Formats in blocks with scales.
    pub const QUANTISED: &'static [Format] = Self::ALL.split_at(3).1;
}

impl FloatFormat {
    /// Formats in which kernels store activations.
    pub const STORED: &'static [FloatFormat] = Self::ALL.split_at(2).0;

    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            FloatFormat::F32 => 4,
            FloatFormat::F16 | FloatFormat::Bf16 => 2,
        }
    }
}

impl KvFormat {
    /// Values of a chunk, which lanes load at a time: 16 bytes, or of q8_0 eight quants and their
    /// scale.
    pub const fn chunk_values(self) -> usize {
        match self {
            KvFormat::F32 => 4,
            KvFormat::F16 | KvFormat::Q8_0 => 8,
        }
    }

    /// Bytes of a vector of `head_dim` values with its scales: whole chunks of 16 bytes of scales
    /// after whole chunks of quants.
    pub const fn vector_bytes(self, head_dim: usize) -> usize {
        match self {
            KvFormat::F32 => 4 * head_dim,
            KvFormat::F16 => 2 * head_dim,
            KvFormat::Q8_0 => {
                16 * (head_dim.div_ceil(16) + head_dim.div_ceil(KV_BLOCK).div_ceil(8))
            }
        }
    }
}

/// Values of a vector of q8_0 that share a scale.
pub const KV_BLOCK: usize = 32;

impl QkvBias {
    /// Elements of the bias of `len` products.
    pub const fn of(self, len: usize) -> usize {
        match self {
            QkvBias::None => 0,
            QkvBias::Added => len,
        }
    }
}

impl NormOffset {
    /// Number that is added to the norm's weight.
    pub const fn value(self) -> f32 {
        match self {
            NormOffset::Standard => 0.0,
            NormOffset::Gemma => 1.0,
        }
    }
}

impl Beta {
    /// The factor.
    pub const fn value(self) -> f32 {
        match self {
            Beta::Zero => 0.0,
            Beta::One => 1.0,
        }
    }
}
