//! Variants of `gemv_q`.

use super::{Family, Row};

const ONE: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]        W: (ROWS, K) quantised  x: (K) f32 or f16",
];

const VECTORS: &[&str] = &[
    "y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[c][k]",
    "W: (ROWS, K) quantised, in planes  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)",
];

const PLANES: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * x[k]     W: (ROWS, K) quantised, in planes  x: (K) f32 or f16",
];

const PLANES_VECTORS: &[&str] = &[
    "y[c][Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[c][k / 32] * xq[c][k])   as planes_dp4a24, of vector c",
    "W: (ROWS, K) quantised, in planes  x: (N_VECTORS, K) f32 or f16  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)",
];

const BITS_23: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])   d = max |x| of 32 / 4161400, xq = round(x / d)",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16",
];

const BITS_16: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])     d = max |x| of 32 / 32639, xq = round(x / d)",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16",
];

const BITS_8: &[&str] = &[
    "y[Y_OFFSET + r] = BETA y + sum_k W[r][k] * (d[k / 32] * xq[k])     d = max |x| of 32 / 127, xq = round(x / d)",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16",
];

const COLUMN_WISE: &[&str] = &[
    "y[c][Y_OFFSET + r] = BETA y + sum_k x[c][k] * W[r][k]",
    "W: (ROWS, K) quantised column by column, in planes  x: (N_VECTORS, K)  y: (N_VECTORS, Y_OFFSET + ROWS + Y_AFTER)",
];

pub(super) const VARIANTS: Family = Family {
    operation: "gemv_q",
    rows: &[
        Row {
            name: "blocks",
            modules: ["plain", "file_blocks", "subgroup_blocks", "store"],
            summary: "one subgroup a row over blocks as the file has them",
            formula: ONE,
            idea: "a lane takes 32 weights of one scale and reads the words it needs, all of \
                   them before the first use; blocks of 18, 22, 34 and 210 bytes lie across \
                   words, so two words are shifted into one. For whoever cannot repack: what \
                   `planes` gains over it is what repacking is worth.",
        },
        Row {
            name: "workgroup",
            modules: ["staged", "soa", "tree_vectors", "store"],
            summary: "LANES invocations a row, summed through workgroup memory; no subgroups \
                      needed",
            formula: VECTORS,
            idea: "the loads of `planes`, then a tree in workgroup memory. The rung for adapters \
                   and browsers without subgroup operations. Several vectors are taken one after \
                   another: the weights for the later ones come from the cache.",
        },
        Row {
            name: "planes",
            modules: ["staged", "soa", "subgroup_tiles", "store"],
            summary: "LANES lanes a row, four chunks in flight a lane",
            formula: PLANES,
            idea: "with the fields of a row's blocks apart every load is sixteen aligned bytes \
                   of quants, 32 neighbours under one scale, coalesced across the lanes; scales \
                   come from their own plane at the same time instead of before. All of a round \
                   is issued before the first use. One row has all lanes (LANES 32) for matrices \
                   of few rows: the more lanes a row, the more of the GPU they fill.",
        },
        Row {
            name: "planes_multicol",
            modules: ["plain", "soa", "soa_rows4", "store"],
            summary: "EACH (2 or 4) rows of W to LANES lanes",
            formula: PLANES,
            idea: "a chunk of 16 bytes meets 128 bytes of x, eight times what it is itself: with \
                   one row a lane workgroup memory would serve x at its full width. The rows \
                   share each load of x; a chunk of each is in flight, and the next are issued \
                   before these are used. LANES is chosen to divide the chunks of a row: 1152 \
                   weights are 36 chunks, which 32 lanes read in two rounds and 8 lanes in five.",
        },
        Row {
            name: "rows8_cols",
            modules: ["vectors_eight", "soa_eight", "rows8", "store"],
            summary: "eight rows a workgroup for up to eight vectors at once",
            formula: VECTORS,
            idea: "as gemv/rows8_cols: eight quants of each of eight rows become floats once and \
                   meet every vector, one fma a product. Lanes take neighbouring words of quants, \
                   so x is read as in gemv, without workgroup memory and without rounding.",
        },
        Row {
            name: "planes_dp4a24_cols",
            modules: ["plain, unscaled, three_digits", "soa", "int8_vectors", "store"],
            summary: "up to eight vectors of activations in 23 bits",
            formula: PLANES_VECTORS,
            idea: "the quants of four rows become bytes once and meet every vector, three \
                   quarters of an instruction a weight and vector where floats take one and \
                   their conversions. A workgroup holds as many quantised vectors as \
                   its memory has room for; with more, neighbouring workgroups have the same \
                   rows and the next vectors, so that the weights cross the bus once.\n\
                   Source: own.",
        },
        Row {
            name: "planes_dp4a24",
            modules: [
                "plain, found, unscaled, three_digits",
                "soa",
                "int8_rows",
                "product_store, store",
            ],
            summary: "activations in 23 bits; three dot4I8Packed for four weights",
            formula: BITS_23,
            idea: "as planes_dp4a16 with one byte more: xq = 65536 t + 256 h + l. Three \
                   dot4I8Packed take four weights, three quarters of an instruction a weight and \
                   a third to unpack (of four bits an eighth: quants go as they lie), where a \
                   float takes three; and an activation is off by at most 2^-23 of the largest of \
                   its 32 (of four bits every second one by 2^-19), about what adding f32 \
                   products rounds away. So it has the bounds of the kernel, and none of its own.\n\
                   Source: own.",
        },
        Row {
            name: "planes_dp4a16",
            modules: [
                "plain, found, unscaled, two_digits",
                "soa",
                "int8_rows",
                "product_store, store",
            ],
            summary: "activations in 16 bits; two dot4I8Packed for four weights",
            formula: BITS_16,
            idea: "as planes_dp4a, with integers of sixteen bits in two signed bytes, xq = 256 h \
                   + l: two dot4I8Packed take four weights, one with h and one with l, and the \
                   sums join once a chunk. A weight so costs half an instruction plus a third to \
                   unpack, where a float takes three. The rounding costs 2e-5 of the \
                   activations' size (an NMSE near 4e-10), 257 times less than with eight bits; \
                   in every layer of a decode it adds up to 3e-8, so it takes a hint. 32639 = \
                   256 * 127 + 127 keeps h and l within a signed byte. Workgroups take several \
                   grid-stride iterations over rows and quantise x once.\n\
                   Source: own; integers per 32 activations as in ggml's q8_1.",
        },
        Row {
            name: "planes_dp4a",
            modules: [
                "plain, found, unscaled, one_digit",
                "soa",
                "int8_rows",
                "product_store, store",
            ],
            summary: "activations in 8 bits; one dot4I8Packed for four weights",
            formula: BITS_8,
            idea: "against 8-bit activations quants stay integers: dot4I8Packed takes four at a \
                   time, and x meets a chunk with 32 bytes instead of 128. Every workgroup \
                   quantises x into its own memory while its first weights are on their way. The \
                   rounding costs about 5e-3 of the activations' size (an NMSE near 3e-5), so \
                   this one has a tolerance of its own and runs only when a hint asks for it.\n\
                   Source: ggml's q8_1 products (mmvq).",
        },
        Row {
            name: "column_wise",
            modules: ["x_one", "soa", "column_wise", "store"],
            summary: "columns of W added up, for blocks that run down the columns",
            formula: COLUMN_WISE,
            idea: "with ORDER column_wise sixteen bytes of quants are 32 rows of one column, and \
                   one activation meets them all: a lane keeps 32 sums, multiplies the scale \
                   with the activation once, and sums what offsets and minimums take off once \
                   for all 32. Eight lanes read 128 neighbouring bytes, WG / 8 columns at a \
                   time, four in flight; SPLITS workgroups share the columns of 256 rows, and a \
                   second dispatch adds them up: no order of the loads makes a column-wise \
                   matrix give whole rows to many workgroups without it.",
        },
    ],
};
