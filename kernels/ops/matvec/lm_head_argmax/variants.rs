//! Variants of `lm_head_argmax`.

use super::{Family, Row};

const DENSE: &[&str] = &[
    "token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends",
    "W: (ROWS, K) dense  x: (K) f32 or f16  best_*: (1), of the parts of W so far",
    "partial_*: a candidate a workgroup",
];

const BLOCKS: &[&str] = &[
    "token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends",
    "W: (ROWS, K)  x: (K) f32 or f16  best_*: (1), of the parts of W so far",
    "partial_*: a candidate a workgroup",
];

const SOA: &[&str] = &[
    "token = FIRST_ROW + min { r : y[r] = max y }, y[r] = sum_k W[r][k] * x[k], then the step ends",
    "W: (ROWS, K) quantised, in planes  x: (K) f32 or f16  best_*: (1), of the parts of W so far",
    "partial_*: a candidate a workgroup",
];

pub(super) const VARIANTS: Family = Family {
    operation: "lm_head_argmax",
    rows: &[
        Row {
            name: "workgroup",
            modules: ["lanes_dense", "dense16", "head_lanes", "head_argmax"],
            summary: "LANES invocations a row, rows in turn; no subgroups needed",
            formula: DENSE,
            idea: "neighbouring invocations read neighbouring words, a tree in workgroup memory \
                   sums them, and the first lane of each row keeps the best of its rows until \
                   the end.",
        },
        Row {
            name: "blocks",
            modules: ["lanes_any", "words", "head_lanes", "head_argmax"],
            summary: "LANES invocations a quantised row, one weight at a time; no subgroups \
                      needed",
            formula: BLOCKS,
            idea: "neighbouring invocations read neighbouring words, a tree in workgroup memory \
                   sums them, and the first lane of each row keeps the best of its rows until \
                   the end. Every weight finds its scale again, so the floor is far; `planes` \
                   reads quants sixteen bytes at a time.",
        },
        Row {
            name: "subgroup",
            modules: ["x_chunk", "dense16", "head_subgroup", "head_argmax"],
            summary: "four rows a subgroup at a time, the best of them in registers",
            formula: DENSE,
            idea: "gemv/subgroup_multicol (x is loaded and unpacked once for four rows, four \
                   independent loads in flight), but no logit is written: after its rows a \
                   workgroup leaves one candidate. Many rows a workgroup keep the second stage \
                   short, few of them balance the load.",
        },
        Row {
            name: "planes",
            modules: ["plain", "soa", "head_rows", "head_argmax"],
            summary: "LANES lanes to four quantised rows, sixteen bytes of quants a load",
            formula: SOA,
            idea: "gemv_q/planes_multicol with the rows of a workgroup one after another: x is \
                   staged and summed once for ROWS_PER_WG of them, loads of the next four rows \
                   are issued while the last of these are used, and each lane keeps the best of \
                   the rows whose sums end in it.",
        },
        Row {
            name: "planes_dp4a24",
            modules: ["plain, found, unscaled, three_digits", "soa", "head_int8", "head_argmax"],
            summary: "as gemv_q/planes_dp4a24, activations as integers of 23 bits",
            formula: SOA,
            idea: "a workgroup quantises x once and takes many grid-stride iterations over rows; \
                   each lane keeps the best of the rows whose products end in it.\n\
                   Source: own.",
        },
    ],
};
